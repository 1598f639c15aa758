//! What goes wrong with the files of a broker that does not run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::draw::Draw;

/// Copies a folder with all in it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, copied) = entry.map(|it| (it.path(), to.join(it.file_name()))).unwrap();
        if path.is_dir() {
            copy(&path, &copied);
        } else {
            fs::copy(path, copied).unwrap();
        }
    }
}

/// Cuts half of the files with messages somewhere.
pub fn cut(store: &Path, draw: &mut Draw) {
    damage(store, draw, |draw, bytes| bytes.truncate(draw.below(bytes.len())));
}

/// Flips a bit of half of the files with messages.
pub fn flip(store: &Path, draw: &mut Draw) {
    damage(store, draw, |draw, bytes| {
        let at = draw.below(bytes.len());
        bytes[at] ^= 1 << draw.below(8);
    });
}

fn damage(store: &Path, draw: &mut Draw, change: impl Fn(&mut Draw, &mut Vec<u8>)) {
    for file in blocks(store) {
        let mut bytes = fs::read(&file).unwrap();
        if !bytes.is_empty() && draw.number().is_multiple_of(2) {
            change(draw, &mut bytes);
            fs::write(&file, bytes).unwrap();
        }
    }
}

/// The files with messages.
fn blocks(store: &Path) -> Vec<PathBuf> {
    let mut folders = vec![store.to_owned()];
    let mut blocks = vec![];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "blk") {
                blocks.push(path);
            }
        }
    }
    blocks.sort();
    blocks
}
