//! `gangline dockerfile`: a Dockerfile for a worker in Python, and the `.dockerignore` beside it.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Component, Path};

use serde_json::Value;

use crate::args::dockerfile::DockerfileArgs;
use crate::error::{CliError, Context, usage};
use crate::exit;

/// The files of an image: paths below this folder, with `/` between their parts.
struct Contents {
    script: String,
    files: Vec<CopiedFile>,
    requirements: Requirements,
}

struct CopiedFile {
    path: String,
    kind: CopiedKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopiedKind {
    File,
    Folder,
}

/// Whether there is a `requirements.txt`, whose packages are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Requirements {
    Listed,
    None,
}

const DOCKERFILE: &str = "Dockerfile";
const IGNORE: &str = ".dockerignore";
const REQUIREMENTS: &str = "requirements.txt";

/// The URL of the repository, below which the releases are. It has a placeholder until the first release.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the text to print. With `--write` it writes files and returns nothing.
pub(crate) fn show(args: &DockerfileArgs) -> Result<Vec<u8>, CliError> {
    let contents = Contents::of(args)?;
    if args.write {
        write(DOCKERFILE, &contents.dockerfile(args))?;
        write(IGNORE, &contents.ignored())?;
        return Ok(Vec::new());
    }
    let text = if args.ignore { contents.ignored() } else { contents.dockerfile(args) };
    Ok(text.into_bytes())
}

impl Contents {
    fn of(args: &DockerfileArgs) -> Result<Contents, CliError> {
        let (script, kind) = copied(&args.script)?;
        if kind != CopiedKind::File || !script.ends_with(".py") {
            let text = "the worker must be a script in Python, as in predict.py; for another language, let the \
                        Dockerfile of `gangline dockerfile worker.py` start it";
            return Err(usage(text));
        }
        let mut files = Vec::new();
        for path in &args.files {
            let (path, kind) = copied(path)?;
            let is_known = path == script || files.iter().any(|it: &CopiedFile| it.path == path);
            if !is_known && path != REQUIREMENTS {
                files.push(CopiedFile { path, kind });
            }
        }
        let requirements = match Path::new(REQUIREMENTS).is_file() {
            true => Requirements::Listed,
            false => Requirements::None,
        };
        Ok(Contents { script, files, requirements })
    }

    fn dockerfile(&self, args: &DockerfileArgs) -> String {
        let mut text = heading(args);
        text += BASE;
        if args.gpu {
            text += GPU;
        }
        text += &program();
        if self.requirements == Requirements::Listed {
            text += PACKAGES;
        }
        text += "\nWORKDIR /app\n";
        let script = CopiedFile { path: self.script.clone(), kind: CopiedKind::File };
        for file in self.files.iter().chain([&script]) {
            text += &file.copy();
        }
        text += "USER 10001:10001\n\n";
        if !args.run {
            text += SERVED;
        }
        text += &self.start(args);
        text
    }

    /// The lines that start the program: as JSON and not through a shell, so that signals reach it.
    fn start(&self, args: &DockerfileArgs) -> String {
        let fixed: &[&str] = match args.run {
            true => &["gangline", "run", "--warm"],
            false => &["gangline", "serve", "--listen", "0.0.0.0:8080"],
        };
        let batch = args.batch.map(|batch| batch.to_string());
        let mut options: Vec<&str> = Vec::new();
        if args.gpu {
            options.extend(["--devices", "cuda:0"]);
        }
        if let Some(batch) = &batch {
            options.extend(["--batch", batch]);
        }
        options.extend(["--", "python3", &self.script]);
        format!("ENTRYPOINT {}\nCMD {}\n", words(fixed), words(&options))
    }

    /// The `.dockerignore`. It excludes everything that the Dockerfile does not copy.
    fn ignored(&self) -> String {
        let mut text = String::from(
            "# Everything stays out of the build but what the Dockerfile copies.\n*\n",
        );
        let requirements = (self.requirements == Requirements::Listed).then_some(REQUIREMENTS);
        let files = self.files.iter().map(|file| &*file.path);
        let kept = requirements.into_iter().chain([&*self.script]).chain(files);
        for path in kept {
            let _ = writeln!(text, "!{path}");
        }
        text += "# A wheel of gangline, for --build-arg GANGLINE_WHEEL.\n!gangline-*.whl\n";
        text += "**/__pycache__\n**/.git\n";
        text
    }
}

impl CopiedFile {
    /// The line that copies the file. It names the target of a folder, since `COPY` takes only the contents of one. The
    /// owner is the user of the image: another user could not read files of mode 0600.
    fn copy(&self) -> String {
        let place = match self.kind {
            CopiedKind::Folder => format!("./{}/", self.path),
            CopiedKind::File => format!("./{}", self.path),
        };
        format!("COPY --chown=10001:10001 {}\n", words(&[&self.path, &place]))
    }
}

/// Returns the path of a file as the build finds it, and its kind.
fn copied(path: &Path) -> Result<(String, CopiedKind), CliError> {
    let refused = |why: &str| usage(&format!("{}: {why}", path.display()));
    let parts = path.components().filter(|part| *part != Component::CurDir);
    let parts: Option<Vec<&str>> = parts
        .map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        })
        .collect();
    let Some(parts) = parts.filter(|parts| !parts.is_empty()) else {
        return Err(refused(
            "a build copies files of this folder and those below; name it from here, in UTF-8",
        ));
    };
    let name = parts.join("/");
    // Builders expand patterns and variables, and share no syntax to escape them.
    let is_special = |c: char| c.is_control() || "*?[]\\$!#".contains(c);
    if name.chars().any(is_special) || name.starts_with(' ') || name.ends_with(' ') {
        return Err(refused(
            "a Dockerfile gives some of its characters another meaning; rename it without * ? [ ] \\ $ ! #, \
             control characters, and blanks at an end",
        ));
    }
    let kind = match path.metadata() {
        Ok(file) if file.is_dir() => CopiedKind::Folder,
        Ok(_) => CopiedKind::File,
        Err(error) => {
            let what = format!("{} cannot be read", path.display());
            return Err(CliError::new(exit::USAGE, Context::new(what, error)));
        }
    };
    Ok((name, kind))
}

fn write(name: &str, text: &str) -> Result<(), CliError> {
    let written = File::create_new(name).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let text =
                format!("{name} is there already: remove it, or see the new one without --write");
            CliError::new(exit::OUTPUT, text)
        }
        _ => CliError::new(exit::OUTPUT, Context::new(format!("{name} cannot be written"), error)),
    })
}

fn words(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| Value::from(*word).to_string()).collect();
    format!("[{}]", words.join(", "))
}

fn heading(args: &DockerfileArgs) -> String {
    let name =
        args.script.file_stem().map_or_else(|| "worker".into(), |name| name.to_string_lossy());
    let name: String = name.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let name = match name.trim_matches('-') {
        "" => "worker",
        name => name,
    };
    let gpus = if args.gpu { " --gpus all" } else { "" };
    let start = if args.run {
        format!("docker run --rm -i{gpus} {name} < inputs.txt > outputs.txt")
    } else {
        format!("docker run --rm{gpus} -p 127.0.0.1:8080:8080 --stop-timeout 30 {name}")
    };
    let mut text = format!("# docker build -t {name} .\n# {start}\n");
    text += "#\n# Other options than those of CMD go behind the name of the image:\n";
    let _ =
        writeln!(text, "# docker run .. {name} --batch 16 -- python3 {}", args.script.display());
    text
}

const BASE: &str = "
ARG BASE=docker.io/library/python:3.12-slim-bookworm
FROM ${BASE}
ENV PYTHONUNBUFFERED=1
";

const GPU: &str = "\
# The driver comes with the runtime of NVIDIA. PyTorch's packages bring the libraries of CUDA. Others need an image
# that has them and Python: --build-arg BASE=docker.io/pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime
ENV NVIDIA_VISIBLE_DEVICES=all
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
";

/// The lines that install the program and its Python module.
fn program() -> String {
    let mut text = format!(
        "
# The program and its Python module: a wheel of the release, by URL or as a file in this folder.
ARG GANGLINE_VERSION={VERSION}
ARG GANGLINE_WHEEL={REPOSITORY}/releases/download/v${{GANGLINE_VERSION}}/gangline-${{GANGLINE_VERSION}}-cp39-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
"
    );
    // The placeholder of `Cargo.toml`.
    if REPOSITORY.contains("/OWNER/") {
        text += "\
# There is no release yet: in a clone of gangline `pip wheel --wheel-dir DIR ./python` makes the wheel. Copy it here,
# and build with --build-arg GANGLINE_WHEEL=gangline-VERSION-cp39-abi3-PLATFORM.whl
";
    }
    text += "\
# hadolint ignore=DL3020
ADD ${GANGLINE_WHEEL} /tmp/gangline/
RUN python3 -m pip install --no-cache-dir /tmp/gangline/*.whl \\
    && useradd --create-home --uid 10001 gangline
";
    text
}

const PACKAGES: &str = "
COPY requirements.txt /tmp/
RUN python3 -m pip install --no-cache-dir -r /tmp/requirements.txt
";

const SERVED: &str = "\
# The port is open to all that reach the container: publish it to a proxy, or use --token.
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=5m --retries=3 \\
    CMD [\"python3\", \"-c\", \"import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health/ready', timeout=4)\"]
";
