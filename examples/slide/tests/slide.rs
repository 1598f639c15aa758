//! The program on made slides. Tests that need ONNX Runtime are ignored here, and `.ci/slide` runs them.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tiff_reader::PhotometricInterpretation;
use tiff_writer::{ImageBuilder, TiffWriter, WriteOptions};

/// One tile at a time.
const ONE: [&str; 6] = ["--devices", "cpu", "--batch", "1", "--readers", "1"];
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
    let wanted = folder.path().join("one by one");
    succeeds(run(&slides, &wanted, &ONE));
    let wanted = files(&wanted);
    assert_eq!(wanted.len(), 10, "{:?}", wanted.keys());
    for more in ["--devices=cpu*3 --batch=16", "--devices=cpu*2 --batch=7 --readers=3", "--cache=1"]
    {
        let output = folder.path().join(more);
        succeeds(run(&slides, &output, &more.split(' ').collect::<Vec<_>>()));
        assert!(files(&output) == wanted, "{more}");
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
    let wanted = folder.path().join("one by one");
    succeeds(run(&slides, &wanted, &ONE));
    assert!(files(&output) == files(&wanted), "{:?}", files(&output).keys());
}

#[test]
#[ignore = "needs ONNX Runtime: .ci/slide"]
fn faulty_slides_fail_alone_and_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let [good, all] = ["good", "all"].map(|name| folder.path().join(name));
    for slides in [&good, &all] {
        make(slides, "700", &["--slides", "2"]);
    }
    let whole = fs::read(all.join("slide-001.tif")).unwrap();
    fs::write(all.join("faulty-truncated.tif"), &whole[..whole.len() / 2]).unwrap();
    fs::write(all.join("faulty-empty.tif"), "").unwrap();
    write_floats(&all.join("faulty-nan.tif"));
    let [good_maps, all_maps] = ["good maps", "all maps"].map(|name| folder.path().join(name));
    succeeds(run(&good, &good_maps, &[]));
    let output = run(&all, &all_maps, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    for name in ["faulty-truncated.tif", "faulty-empty.tif", "faulty-nan.tif", "a pixel is NaN"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    let (mut all_maps, mut good_maps) = (files(&all_maps), files(&good_maps));
    let failed =
        [&mut all_maps, &mut good_maps].map(|files| text(&files.remove("failed.csv").unwrap()));
    assert_eq!(failed.each_ref().map(|table| table.lines().count()), [4, 1], "{failed:?}");
    assert!(all_maps == good_maps, "{:?}", all_maps.keys());
}

#[test]
#[ignore = "needs ONNX Runtime: .ci/slide"]
fn all_slides_that_fail_are_named_until_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let (slides, output) = (folder.path().join("slides"), folder.path().join("maps"));
    make(&slides, "700", &["--slides", "1"]);
    for number in 10..23 {
        fs::write(slides.join(format!("faulty-{number}.tif")), "").unwrap();
    }
    let said = run(&slides, &output, &[]).output().unwrap();
    assert!(
        text(&said.stdout).contains("failed.csv names all that failed"),
        "{}",
        text(&said.stdout)
    );
    let failed = |output: &Path| fs::read_to_string(output.join("failed.csv")).unwrap();
    let all = failed(&output);
    for number in 10..23 {
        assert_eq!(all.matches(&format!("\nfaulty-{number}.tif,")).count(), 1, "{number}: {all}");
    }
    // The next run tries them again.
    for number in 10..22 {
        fs::copy(slides.join("slide-000.tif"), slides.join(format!("faulty-{number}.tif")))
            .unwrap();
    }
    run(&slides, &output, &[]).output().unwrap();
    let last = failed(&output);
    assert!(last.lines().count() == 2 && last.contains("\nfaulty-22.tif,"), "{last}");
    assert_eq!(fs::read_to_string(output.join("slides.csv")).unwrap().lines().count(), 14);
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
        features.iter().for_each(is_as_qupath_reads_it);
        let found: f64 =
            features.iter().map(|feature| area(&feature["geometry"]["coordinates"][0])).sum();
        let share = found / spots.parse::<f64>().unwrap();
        // Cells are 8 pixels wide, and spots about 30.
        assert!((0.75..1.35).contains(&share), "{name}: {share}");
    }
}

/// As its documentation has it: https://qupath.readthedocs.io/en/stable/docs/advanced/exporting_annotations.html
fn is_as_qupath_reads_it(feature: &Value) {
    assert_eq!(feature["type"], "Feature");
    let properties = &feature["properties"];
    assert_eq!(properties["objectType"], "annotation");
    assert_eq!(properties["classification"], json!({"name": "Positive", "color": [200, 0, 0]}));
    assert!(
        properties["measurements"]["Mean probability"].as_f64().is_some_and(|mean| mean >= 0.5)
    );
    assert_eq!(feature["geometry"]["type"], "Polygon");
    let rings = feature["geometry"]["coordinates"].as_array().unwrap();
    for (ring, number) in rings.iter().zip(0..) {
        let corners = ring.as_array().unwrap();
        assert!(corners.len() >= 5 && corners.first() == corners.last(), "{ring}");
        // RFC 7946: the outer ring is counterclockwise, and holes are clockwise.
        assert_eq!(signed_area(ring) > 0.0, number == 0, "{ring}");
    }
}

/// Writes a slide of floats that is all tissue. A pixel of its largest level is not a number.
fn write_floats(path: &Path) {
    let mut file =
        TiffWriter::new(fs::File::create(path).unwrap(), WriteOptions::default()).unwrap();
    for side in [512, 256] {
        let page = ImageBuilder::new(side, side)
            .sample_type::<f32>()
            .samples_per_pixel(3)
            .photometric(PhotometricInterpretation::Rgb)
            .tiles(256, 256);
        let page = file.add_image(if side < 512 { page.overview() } else { page }).unwrap();
        let mut tile = [0.9_f32, 0.6, 0.7].repeat(256 * 256);
        if side == 512 {
            tile[1000] = f32::NAN;
        }
        for number in 0..(side as usize / 256).pow(2) {
            file.write_block(&page, number, &tile).unwrap();
        }
    }
    file.finish().unwrap();
}

fn area(ring: &Value) -> f64 {
    signed_area(ring).abs()
}

fn signed_area(ring: &Value) -> f64 {
    let corner = |corner: &Value| (corner[0].as_f64().unwrap(), corner[1].as_f64().unwrap());
    let corners: Vec<_> = ring.as_array().unwrap().iter().map(corner).collect();
    let twice: f64 =
        corners.windows(2).map(|pair| pair[0].0 * pair[1].1 - pair[1].0 * pair[0].1).sum();
    twice / 2.0
}
