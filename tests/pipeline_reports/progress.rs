//! The progress of a pipeline, as its last stage shows it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use gangline::{Order, Progress};

use crate::hooks::Hooks;
use crate::rows::{failing, orders, skipping, with_pipeline};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Two items fail in the first stage, one in the second, one in the last.
#[test]
fn it_counts_the_items_of_the_input_and_the_failures_of_all_stages() {
    for orders in orders(3) {
        let lines = Lines::default();
        let last = skipping(failing(|x| x == 12), orders[2]);
        let mut row = [
            skipping(failing(|x| x < 2), orders[0]).key(|x| format!("tile {x}")).build().unwrap(),
            skipping(failing(|x| x == 11), orders[1]).build().unwrap(),
            last.observer(Progress::lines_to(lines.clone())).build().unwrap(),
        ];
        with_pipeline(&mut row, |row| row.run_vec((0..40).collect()).unwrap());
        let text = lines.text();
        let result = text.lines().last().unwrap();
        assert!(result.starts_with("40/40 in "), "{text}");
        assert!(result.ends_with(", 4 failed"), "{text}");
        for item in ["tile 0", "tile 1", "tile 11", "tile 12"] {
            assert!(text.contains(&format!("(\"{item}\")")), "{item} of {text}");
        }
    }
}

#[test]
fn a_failure_that_ends_the_run_in_an_earlier_stage_is_shown_once() {
    let lines = Lines::default();
    let a = skipping(failing(|x| x == 3), Order::Input)
        .on_error(gangline::OnError::Stop)
        .build()
        .unwrap();
    let last = skipping(Hooks::new(), Order::Input);
    let mut b = last.observer(Progress::lines_to(lines.clone())).build().unwrap();
    a.then(&mut b).run(0..40).unwrap_err();
    let text = lines.text();
    let result = text.lines().last().unwrap();
    assert!(result.starts_with("failed, 4/40 in ") && result.ends_with("1 failed"), "{text}");
    assert_eq!(text.matches("no 3").count(), 1, "{text}");
}
