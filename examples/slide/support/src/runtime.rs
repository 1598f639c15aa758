//! Where the library of ONNX Runtime is.

use std::path::PathBuf;
use std::process::Command;

const NOT_FOUND: &str = "ONNX Runtime was not found: name its library with --onnxruntime or ORT_DYLIB_PATH, or install \
    it for the `python3` in PATH with `pip install onnxruntime` (GPUs: `onnxruntime-gpu`), or get it from \
    https://github.com/microsoft/onnxruntime/releases";

/// A Python program that prints the path of its installation's library, as Linux or macOS names it.
const WHERE: &str = "import glob, importlib.util as u
print(*glob.glob(u.find_spec('onnxruntime').submodule_search_locations[0] + '/capi/libonnxruntime.*'))";

/// Returns the named file, that of the variable `ORT_DYLIB_PATH`, or that of the Python installation in `PATH`.
///
/// # Errors
///
/// There is none. The error says how to get it.
pub fn find_onnxruntime(named: Option<PathBuf>) -> Result<PathBuf, &'static str> {
    let named = named.or_else(|| std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from));
    named.or_else(of_python).ok_or(NOT_FOUND)
}

fn of_python() -> Option<PathBuf> {
    let found = Command::new("python3").args(["-c", WHERE]).output().ok()?;
    let library = String::from_utf8(found.stdout).ok()?;
    (!library.trim().is_empty()).then(|| library.trim().into())
}
