//! The example `tiles`.

#[path = "../../examples/tiles.rs"]
#[expect(dead_code, reason = "the test calls what `main` calls, with a folder of its own")]
mod example;

use crate::support::no_hang;

#[test]
fn the_tiles_of_images_make_the_files_of_a_loop() {
    no_hang(|| {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(example::run(folder.path()).unwrap(), 7);
    });
}
