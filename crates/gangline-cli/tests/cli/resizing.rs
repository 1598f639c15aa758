//! The display of progress in a terminal whose width changes while the program runs.

use std::io;
use std::process::{Command, Output};

use crate::output::WAIT;
use crate::support::{Place, wait_until};

/// A window of tmux, which wraps its lines again for another width.
struct Window<'a>(&'a Place);

impl<'a> Window<'a> {
    /// Runs a script in a new window. `None` if tmux is not installed, which it says.
    #[expect(clippy::print_stderr, reason = "a check that was left out is mentioned")]
    fn open(place: &'a Place, columns: usize, script: &str) -> Option<Window<'a>> {
        let window = Window(place);
        let size = ["-x", &columns.to_string(), "-y", "20"];
        let session = ["-f", "/dev/null", "new-session", "-d"];
        match window.tmux(&[&session[..], &size[..], &[script]].concat()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                eprintln!("tmux is not installed, so no display is resized");
                None
            }
            opened => {
                assert!(opened.as_ref().is_ok_and(|it| it.status.success()), "{opened:?}");
                Some(window)
            }
        }
    }

    fn tmux(&self, arguments: &[&str]) -> io::Result<Output> {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.0.path("socket")).args(arguments);
        command.current_dir(self.0.directory()).env("TMPDIR", self.0.path("tmp"));
        command.env_remove("NO_COLOR").output()
    }

    fn resize(&self, columns: usize) {
        self.tmux(&["resize-window", "-x", &columns.to_string()]).unwrap();
    }

    /// The rows that are not empty, also those above the window.
    fn rows(&self) -> Vec<String> {
        let shown = self.tmux(&["capture-pane", "-p", "-S", "-"]).unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        shown.lines().filter(|row| !row.is_empty()).map(str::to_owned).collect()
    }

    /// Waits until there are these rows and no others, and a bar of about this width.
    #[track_caller]
    fn wait_for(&self, columns: usize, rows: &[&str]) {
        wait_until(&format!("{columns} columns show {rows:?}"), || {
            let shown = self.rows();
            let is_there = shown.len() == rows.len()
                && shown.iter().zip(rows).all(|(shown, row)| shown.starts_with(row));
            let bar = shown.iter().find(|row| row.starts_with('['));
            is_there && bar.is_none_or(|bar| columns - 10 < bar.len() && bar.len() <= columns)
        });
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

#[test]
fn a_display_follows_the_width_of_its_terminal() {
    let place = Place::new();
    place.write("wait", WAIT);
    place.write("job", "sh wait line$1; echo line $1; sh wait end; exit 0");
    let program = env!("CARGO_BIN_EXE_gangline");
    let options = "--line-buffer -j2 --bar";
    // tmux moves the first rows of a window that becomes narrower into its history, where nothing changes them.
    let script = format!(
        "yes '' | head -8; echo before; {program} run {options} -- sh job ::: 1 2; echo after; sh wait closed"
    );
    let Some(window) = Window::open(&place, 50, &script) else { return };
    let mut rows = vec!["before", "[-", "  0  cpu", "  1  cpu"];
    window.wait_for(50, &rows);
    for columns in [80, 50, 80, 120, 65] {
        window.resize(columns);
        window.wait_for(columns, &rows);
    }
    // A line of a job comes while the display does not know of the greater width, and then above a narrower one.
    window.resize(90);
    place.write("line1", "");
    rows.insert(rows.len() - 3, "line 1");
    window.wait_for(90, &rows);
    window.resize(50);
    window.wait_for(50, &rows);
    place.write("line2", "");
    rows.insert(rows.len() - 3, "line 2");
    window.wait_for(50, &rows);
    // Each line had two rows there.
    window.resize(30);
    window.wait_for(30, &rows);
    window.resize(70);
    place.write("end", "");
    let ended = ["before", "line 1", "line 2", "2/2 in ", "after"];
    window.wait_for(70, &ended);
    place.write("closed", "");
}
