//! Tests of the display on a terminal whose width changes.

use super::*;

/// A terminal that wraps its lines again if its width changes.
#[derive(Debug)]
struct Wrapping(Mutex<Grid>);

#[derive(Debug)]
struct Grid {
    columns: usize,
    /// The width that the program is told.
    told: usize,
    /// The characters of a row, and whether the line goes on in the next one.
    rows: Vec<(Vec<char>, bool)>,
    row: usize,
    column: usize,
    wraps: bool,
}

impl Wrapping {
    fn new(columns: usize) -> Arc<Wrapping> {
        let rows = vec![(vec![], false)];
        let grid = Grid { columns, told: columns, rows, row: 0, column: 0, wraps: true };
        Arc::new(Wrapping(Mutex::new(grid)))
    }

    /// Takes another width, of which the program is told later.
    fn resize(&self, columns: usize) {
        self.0.lock().unwrap().resize(columns);
    }

    fn tell_width(&self) {
        let mut grid = self.0.lock().unwrap();
        grid.told = grid.columns;
    }

    /// The rows that are not empty.
    fn text(&self) -> Vec<String> {
        let grid = self.0.lock().unwrap();
        let rows = grid.rows.iter().map(|(row, _)| row.iter().collect::<String>());
        rows.map(|row| row.trim_end().to_owned()).filter(|row| !row.is_empty()).collect()
    }
}

impl Grid {
    fn put(&mut self, character: char) {
        if self.column == self.columns && self.wraps {
            self.rows[self.row].1 = true;
            self.next_row();
            self.column = 0;
        }
        self.column = self.column.min(self.columns - 1);
        let row = &mut self.rows[self.row].0;
        row.resize(row.len().max(self.column + 1), ' ');
        row[self.column] = character;
        self.column += 1;
    }

    fn next_row(&mut self) {
        self.row += 1;
        self.rows.resize(self.rows.len().max(self.row + 1), (vec![], false));
    }

    fn obey(&mut self, sequence: &str) {
        match sequence {
            "[A" => self.row = self.row.saturating_sub(1),
            "[2K" => self.rows[self.row] = (vec![], false),
            "[?7l" => self.wraps = false,
            "[?7h" => self.wraps = true,
            other => panic!("the display does not need {other:?}"),
        }
    }

    fn resize(&mut self, columns: usize) {
        let (old, row) = (mem::take(&mut self.rows), self.row);
        self.columns = columns;
        let mut line = Vec::new();
        for (number, (characters, goes_on)) in old.into_iter().enumerate() {
            line.extend(characters);
            if goes_on && number != row {
                continue;
            }
            let rows: Vec<_> = line.chunks(columns).map(|row| (row.to_vec(), true)).collect();
            self.rows.extend(if rows.is_empty() { vec![(vec![], true)] } else { rows });
            line.clear();
            self.rows.last_mut().expect("there is one").1 = goes_on;
            if number == row {
                self.row = self.rows.len() - 1;
                self.column = self.rows[self.row].0.len();
            }
        }
    }
}

impl ScreenTerminal for Wrapping {
    fn size(&self) -> (usize, usize) {
        (50, self.0.lock().unwrap().told)
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut grid = self.0.lock().unwrap();
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            rest = &rest[character.len_utf8()..];
            match character {
                '\r' => grid.column = 0,
                '\n' => grid.next_row(),
                '\x1b' => {
                    let end = 1 + rest.find(char::is_alphabetic).expect("a sequence has an end");
                    grid.obey(&rest[..end]);
                    rest = &rest[end..];
                }
                character => grid.put(character),
            }
        }
        Ok(())
    }
}

/// The first is as wide as the terminal.
fn lines(_: usize, columns: usize) -> Vec<String> {
    vec!["#".repeat(columns), "lines".into(), String::new(), "of progress".into()]
}

/// Each change of the width comes to the program after some frames.
#[test]
fn another_width_leaves_no_row_behind_and_takes_none() {
    for widths in [[80, 50], [50, 80], [80, 20], [20, 160], [80, 79]] {
        for late_frames in 0..4 {
            let terminal = Wrapping::new(widths[0]);
            let screen = Screen::new(terminal.clone(), Resizing::Wraps);
            terminal.write("earlier\r\noutput\r\n").unwrap();
            let block = screen.block();
            block.show(lines);
            let resize = |width| {
                terminal.resize(width);
                (0..late_frames).for_each(|_| block.show(lines));
                terminal.tell_width();
            };
            let mut above = vec!["earlier", "output"];
            for width in widths.into_iter().cycle().skip(1).take(4) {
                resize(width);
                block.show(lines);
                let shown = ["#".repeat(width), "lines".into(), "of progress".into()];
                let expected: Vec<_> =
                    above.iter().copied().chain(shown.iter().map(String::as_str)).collect();
                assert_eq!(terminal.text(), expected, "{widths:?} {late_frames}");
            }
            resize(widths[1]);
            screen.suspend(|| {
                assert_eq!(terminal.text(), above, "{widths:?} {late_frames}");
                terminal.write("more\r\n").unwrap();
            });
            resize(widths[0]);
            block.tell("a message", Ink::Bad, Colors::Off);
            resize(widths[1]);
            block.end("the end");
            above.extend(["more", "a message", "the end"]);
            assert_eq!(terminal.text(), above, "{widths:?} {late_frames}");
        }
    }
}

/// A terminal that wraps is not known as one, but it becomes wider only.
#[test]
fn a_greater_width_leaves_no_row_behind_in_any_terminal() {
    let terminal = Wrapping::new(50);
    let screen = Screen::new(terminal.clone(), Resizing::Cuts);
    let block = screen.block();
    for width in [60, 80, 81, 200] {
        block.show(lines);
        terminal.resize(width);
        block.show(lines);
        terminal.tell_width();
    }
    block.show(lines);
    assert_eq!(terminal.text(), [&*"#".repeat(200), "lines", "of progress"]);
}

#[test]
fn what_is_told_while_others_write_follows_them() {
    let terminal = Wrapping::new(80);
    let screen = Screen::new(terminal.clone(), Resizing::Wraps);
    let (block, other) = (screen.block(), screen.block());
    block.show(|_, _| vec!["progress".to_owned()]);
    screen.suspend(|| {
        terminal.write("a table ").unwrap();
        screen.suspend(|| block.tell("a message", Ink::Bad, Colors::Off));
        other.end("the end of another run");
        block.show(|_, _| vec!["further progress".to_owned()]);
        terminal.write("in two parts\r\n").unwrap();
    });
    let expected =
        ["a table in two parts", "a message", "the end of another run", "further progress"];
    assert_eq!(terminal.text(), expected);
}

#[test]
fn a_terminal_is_known_by_its_variables() {
    for (variables, expected) in [
        (&["VTE_VERSION=7"][..], Resizing::Wraps),
        (&["TMUX=x", "STY=x"], Resizing::Wraps),
        (&["VTE_VERSION=7", "STY=x"], Resizing::Cuts),
        (&["VTE_VERSION=7", "XTERM_VERSION=x", "TERM=xterm-256color"], Resizing::Cuts),
        (&["TERM=tmux-256color"], Resizing::Wraps),
        (&["TERM=xterm-kitty", "XTERM_VERSION=x"], Resizing::Wraps),
        (&["TERM=xterm-256color"], Resizing::Cuts),
        (&[], Resizing::Cuts),
    ] {
        let variable = |name: &str| {
            let named = variables.iter().filter_map(|variable| variable.split_once('='));
            named.into_iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_owned())
        };
        assert_eq!(Resizing::of(variable), expected, "{variables:?}");
    }
}
