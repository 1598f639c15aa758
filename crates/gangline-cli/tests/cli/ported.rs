//! The commands on the pages for users of other tools print what the pages say.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::examples::{blocks, check_commands};
use crate::support::Place;

/// The pages `docs/from-*.md`, each with its name.
fn pages() -> Vec<(String, String)> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let paths = fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let paths = paths.filter(|path| name(path).starts_with("from-"));
    paths.map(|path| (name(&path), fs::read_to_string(path).unwrap())).collect()
}

/// What the functions of the page on GPUPool do, without a model.
const TASKS: &str = "
def initialize_model(gpu_id, *args):
    return gpu_id, args

def process_task(file, output, scale_factor, gpu_id, models):
    assert models == (0, ('large', 'model.pth', 'config.yaml', 1)), models
";

/// Prints its command, and cannot read one file.
const MOTIONCOR2: &str = "#!/bin/sh\necho \"motioncor2 $*\"\n[ \"$2\" != broken.mrc ]\n";

/// A place with the files that the pages mention, and with the scripts whose first line is a comment with their name.
fn place_of(page: &str) -> Place {
    let place = Place::new();
    for name in ["a.mrc", "b.mrc"] {
        place.write(name, "");
    }
    place.write("tasks.py", TASKS);
    fs::create_dir(place.path("bin")).unwrap();
    let program = place.write("bin/motioncor2", MOTIONCOR2);
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    for script in blocks(page, "python") {
        if let Some((name, _)) = script.split_once('\n').filter(|(name, _)| name.ends_with(".py")) {
            place.write(name.trim_start_matches("# "), script);
        }
    }
    place
}

#[test]
fn commands_print_what_the_pages_say() {
    let mut checked = 0;
    for (_, page) in pages() {
        let place = place_of(&page);
        for block in blocks(&page, "console") {
            checked += check_commands(&place, block);
        }
    }
    assert!(checked >= 5, "{checked}");
}
