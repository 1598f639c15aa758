//! The user's model, in ONNX Runtime.

use std::path::{Path, PathBuf};
use std::process::Command;

use gangline::{Device, Result};
use ort::ep;
use ort::session::Session;
use ort::value::TensorRef;

/// A model on one device. Its input has the shape N x 3 x side x side, with red, green and blue from 0 to 1. Its output
/// has probabilities in one of the shapes N, N x classes and N x classes x height x width.
pub(crate) struct Model {
    session: Session,
    settings: Settings,
    /// The input of a batch.
    input: Vec<f32>,
}

/// The settings of a model.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) path: PathBuf,
    /// The class that the map shows; `None` is the last.
    pub(crate) class: Option<usize>,
    /// Pixels of a tile's side.
    pub(crate) side: usize,
    /// Cells of the map on a tile's side.
    pub(crate) cells: usize,
    /// Every list has one tile.
    pub(crate) is_single: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ModelError {
    #[error(
        "ONNX Runtime was not found: name its library with --onnxruntime or ORT_DYLIB_PATH, or install it for the \
         `python3` in PATH with `pip install onnxruntime` (GPUs: `onnxruntime-gpu`), or get it from \
         https://github.com/microsoft/onnxruntime/releases"
    )]
    NotFound,
    #[error("{library} cannot be loaded as ONNX Runtime 1.17 or later: {cause}")]
    NotLoaded { library: String, cause: String },
    #[error("ONNX Runtime has no use for {0}: devices are cpu, cuda:0 and so on")]
    Device(Device),
    #[error("the model's output has the shape {shape:?} for {tiles} tiles: {wanted}")]
    Shape { shape: Vec<i64>, tiles: usize, wanted: &'static str },
    #[error(
        "the model takes {0} tiles at a time: export it with a free N, or take --batch 1 if it is 1"
    )]
    Fixed(i64),
    #[error("the model gives {0}, which is no probability: does it end with a sigmoid or softmax?")]
    NoProbability(f32),
}

/// A Python program that prints the paths of its installation's library.
const WHERE: &str = "import glob, importlib.util as u
print(*glob.glob(u.find_spec('onnxruntime').submodule_search_locations[0] + '/capi/libonnxruntime.so.*'
    ) + glob.glob(u.find_spec('onnxruntime').submodule_search_locations[0] + '/capi/libonnxruntime.*.dylib'))";

/// Loads ONNX Runtime from the named file, `ORT_DYLIB_PATH`, or the Python installation in `PATH`.
pub(crate) fn load_runtime(named: Option<PathBuf>) -> Result<()> {
    let named = named.or_else(|| std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from));
    let library = named.or_else(of_python).ok_or(ModelError::NotFound)?;
    let not_loaded = |cause: ort::LoadDynamicError| {
        let library = library.display().to_string();
        ModelError::NotLoaded { library, cause: cause.to_string() }
    };
    ort::init_from(&library).map_err(not_loaded)?.commit();
    Ok(())
}

fn of_python() -> Option<PathBuf> {
    let found = Command::new("python3").args(["-c", WHERE]).output().ok()?;
    let library = String::from_utf8(found.stdout).ok()?;
    (!library.trim().is_empty()).then(|| library.trim().into())
}

impl Model {
    /// Loads the model, and tries it with an empty tile. A model of the wrong shape then fails before the run.
    pub(crate) fn open(settings: &Settings, device: &Device) -> Result<Model> {
        let session = match device {
            Device::Cpu => session(&settings.path, None)?,
            Device::Cuda(index) => session(&settings.path, Some(*index as i32))?,
            other => return Err(ModelError::Device(*other).into()),
        };
        let length = session.inputs().first().and_then(|input| input.dtype().tensor_shape());
        match length.and_then(|shape| shape.first().copied()) {
            Some(1) if settings.is_single => {}
            // A list that the model refuses would be divided into single tiles.
            Some(length @ 1..) => return Err(ModelError::Fixed(length).into()),
            _ => {}
        }
        let mut model = Model { session, settings: settings.clone(), input: Vec::new() };
        let blank = vec![255; settings.side * settings.side * 3];
        model.run([blank.as_slice()])?.remove(0)?;
        Ok(model)
    }

    /// Returns the cells of each tile, row by row: probabilities from 0 to 255.
    pub(crate) fn run<'t>(
        &mut self,
        tiles: impl IntoIterator<Item = &'t [u8]>,
    ) -> Result<Vec<Result<Vec<u8>>>> {
        self.input.clear();
        let mut count = 0;
        for tile in tiles {
            for colour in 0..3 {
                let values = tile[colour..].iter().step_by(3);
                self.input.extend(values.map(|&value| f32::from(value) / 255.0));
            }
            count += 1;
        }
        let Settings { class, side, cells, .. } = self.settings;
        let input = TensorRef::from_array_view(([count, 3, side, side], self.input.as_slice()))?;
        let outputs = self.session.run(ort::inputs![input])?;
        let (shape, values) = outputs[0].try_extract_tensor::<f32>()?;
        let wrong = |wanted| ModelError::Shape { shape: shape.to_vec(), tiles: count, wanted };
        let lengths: Vec<usize> = shape.iter().map(|&length| length as usize).collect();
        let (classes, height, width) = match lengths[..] {
            [n] if n == count => (1, 1, 1),
            [n, classes] if n == count => (classes, 1, 1),
            [n, classes, height, width] if n == count => (classes, height, width),
            _ => {
                return Err(
                    wrong("N, N x classes or N x classes x height x width is needed").into()
                );
            }
        };
        let class = class.unwrap_or(classes.saturating_sub(1));
        if class >= classes {
            return Err(wrong("it lacks the class that --class asks for").into());
        }
        if [height, width].iter().any(|&n| n == 0 || n % cells != 0 && cells % n != 0) {
            return Err(wrong(
                "--tile / --cell must divide its height and width, or be divided by them",
            )
            .into());
        }
        let of_tile = |tile: usize| {
            let from = (tile * classes + class) * height * width;
            to_cells(&values[from..from + height * width], width, cells)
        };
        Ok((0..count).map(|tile| Ok(of_tile(tile)?)).collect())
    }
}

/// One thread for each session. More would compete with the other producers.
fn session(model: &Path, gpu: Option<i32>) -> ort::Result<Session> {
    let mut builder = Session::builder()?.with_intra_threads(1)?;
    if let Some(index) = gpu {
        let cuda = ep::CUDA::default().with_device_id(index).build().error_on_failure();
        builder = builder.with_execution_providers([cuda])?;
    }
    builder.commit_from_file(model)
}

/// Repeats or averages probabilities to the number of cells. Rounding to 255 steps also hides differences in the last
/// digits, which a model may have between batches of different sizes.
fn to_cells(values: &[f32], width: usize, cells: usize) -> Result<Vec<u8>, ModelError> {
    if let Some(value) = values.iter().find(|value| !(-1e-5..=1.00001).contains(*value)) {
        return Err(ModelError::NoProbability(*value));
    }
    let height = values.len() / width;
    let span = |cell: usize, length: usize| {
        let from = cell * length / cells;
        from..((cell + 1) * length / cells).max(from + 1)
    };
    let cell = |i: usize| {
        let (columns, rows) = (span(i % cells, width), span(i / cells, height));
        let count = (columns.len() * rows.len()) as f32;
        let sum: f32 = rows.map(|y| values[y * width..][columns.clone()].iter().sum::<f32>()).sum();
        (sum / count * 255.0).round() as u8
    };
    Ok((0..cells * cells).map(cell).collect())
}
