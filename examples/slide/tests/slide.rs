//! The program on made slides. Tests that need ONNX Runtime are ignored here, and `.ci/slide` runs them.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const SMALL: [&str; 4] = ["--tile", "64", "--cell", "8"];

fn slide() -> Command {
    Command::new(env!("CARGO_BIN_EXE_slide"))
}

fn make(folder: &Path, side: &str, more: &[&str]) {
    let mut made = slide();
    made.args(["make", "--width", "4", "--side", side, "--output"]).arg(folder).args(more);
    assert!(made.status().unwrap().success());
}

fn run(slides: &Path, output: &Path, more: &[&str]) -> Command {
    let mut run = slide();
    run.args(["run", "--slides"]).arg(slides).arg("--model").arg(slides.join("model.onnx"));
    run.arg("--output").arg(output).args(SMALL).args(more);
    run
}

/// The files of a folder without the journal and the leftovers of a killed run.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let named = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    let all = fs::read_dir(folder).unwrap().map(|entry| named(entry.unwrap()));
    all.filter(|(name, _)| !name.starts_with('.') && name != "journal").collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeds(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

#[test]
fn a_missing_library_is_an_error_that_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("slide.tif"), "").unwrap();
    let mut run = run(folder.path(), &folder.path().join("maps"), &[]);
    let output = run.env_remove("ORT_DYLIB_PATH").env("PATH", "").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("pip install onnxruntime"), "{}", text(&output.stderr));
}

#[test]
fn a_folder_without_slides_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &folder.path().join("maps"), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("has no .tif"), "{}", text(&output.stderr));
}

#[test]
#[ignore = "needs ONNX Runtime: .ci/slide"]
fn devices_and_batches_change_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    let slides = folder.path().join("slides");
    make(&slides, "700", &[]);
    let wanted = folder.path().join("loop");
    succeeds(run(&slides, &wanted, &["--sequential"]));
    let wanted = files(&wanted);
    assert_eq!(wanted.len(), 9, "{:?}", wanted.keys());
    for (devices, batch) in [("cpu", "1"), ("cpu*3", "16"), ("cpu*2", "auto"), ("cpu*2", "7")] {
        let output = folder.path().join(format!("{devices} {batch}"));
        succeeds(run(&slides, &output, &["--devices", devices, "--batch", batch]));
        assert!(files(&output) == wanted, "{devices} {batch}");
    }
}

#[test]
#[ignore = "needs ONNX Runtime: .ci/slide"]
fn a_run_that_is_killed_loses_no_slide() {
    let folder = tempfile::tempdir().unwrap();
    let (slides, output) = (folder.path().join("slides"), folder.path().join("maps"));
    make(&slides, "700", &["--slides", "6"]);
    // Each run is killed once it has written this number of slides, often between a file and the journal.
    for lines in [1, 2, 1, 1] {
        let mut child = run(&slides, &output, &[])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut written = BufReader::new(child.stdout.take().unwrap()).lines();
        written.by_ref().take(lines).for_each(drop);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    succeeds(run(&slides, &output, &[]));
    let wanted = folder.path().join("loop");
    succeeds(run(&slides, &wanted, &["--sequential"]));
    assert!(files(&output) == files(&wanted), "{:?}", files(&output).keys());
}

#[test]
#[ignore = "needs ONNX Runtime: .ci/slide"]
fn faulty_slides_fail_alone_and_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let [good, all] = ["good", "all"].map(|name| folder.path().join(name));
    // Large enough for a second level: the mask of the NaN slide is whole, and one of its tiles is not.
    make(&good, "1100", &["--slides", "2"]);
    make(&all, "1100", &["--slides", "2", "--faulty"]);
    let [good_maps, all_maps] = ["good maps", "all maps"].map(|name| folder.path().join(name));
    succeeds(run(&good, &good_maps, &[]));
    let output = run(&all, &all_maps, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    for name in ["faulty-truncated.tif", "faulty-empty.tif", "faulty-nan.tif", "a pixel is NaN"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    assert!(files(&all_maps) == files(&good_maps), "{:?}", files(&all_maps).keys());
}

#[test]
#[ignore = "needs ONNX Runtime: .ci/slide"]
fn areas_are_where_the_spots_are_and_batches_are_full() {
    let folder = tempfile::tempdir().unwrap();
    let (slides, output) = (folder.path().join("slides"), folder.path().join("maps"));
    make(&slides, "700", &["--slides", "8"]);
    let said = text(&succeeds(run(&slides, &output, &["--batch", "16"])).stdout);
    let full = said.split(' ').rev().nth(2).and_then(|share| share.parse::<f64>().ok());
    assert!(full.is_some_and(|full| full >= 95.0), "{said}");
    for line in fs::read_to_string(slides.join("truth.csv")).unwrap().lines().skip(1) {
        let (name, spots) = line.split_once(',').unwrap();
        let areas = fs::read(output.join(format!("{name}.geojson"))).unwrap();
        let areas: Value = serde_json::from_slice(&areas).unwrap();
        let features = areas["features"].as_array().unwrap();
        assert_eq!(features.len(), 6, "{name}");
        let found: f64 =
            features.iter().map(|feature| area(&feature["geometry"]["coordinates"][0])).sum();
        let share = found / spots.parse::<f64>().unwrap();
        // Cells are 8 pixels wide, and spots about 30.
        assert!((0.75..1.35).contains(&share), "{name}: {share}");
    }
}

fn area(ring: &Value) -> f64 {
    let corner = |corner: &Value| (corner[0].as_f64().unwrap(), corner[1].as_f64().unwrap());
    let corners: Vec<_> = ring.as_array().unwrap().iter().map(corner).collect();
    let twice: f64 =
        corners.windows(2).map(|pair| pair[0].0 * pair[1].1 - pair[1].0 * pair[0].1).sum();
    twice.abs() / 2.0
}
