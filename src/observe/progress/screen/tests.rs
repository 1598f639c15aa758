//! Tests of the display on a terminal whose width changes.

use super::*;

/// A terminal that wraps its lines again if its width changes.
#[derive(Debug)]
struct Wrapping(Mutex<Grid>);

#[derive(Debug)]
struct Grid {
    columns: usize,
    /// The characters of a row, and whether the line goes on in the next one.
    rows: Vec<(Vec<char>, bool)>,
    row: usize,
    column: usize,
}

impl Wrapping {
    fn new(columns: usize) -> Arc<Wrapping> {
        let grid = Grid { columns, rows: vec![(vec![], false)], row: 0, column: 0 };
        Arc::new(Wrapping(Mutex::new(grid)))
    }

    fn resize(&self, columns: usize) {
        self.0.lock().unwrap().resize(columns);
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
        if self.column == self.columns {
            self.rows[self.row].1 = true;
            self.next_row();
        }
        let row = &mut self.rows[self.row].0;
        row.resize(row.len().max(self.column + 1), ' ');
        row[self.column] = character;
        self.column += 1;
    }

    fn next_row(&mut self) {
        (self.row, self.column) = (self.row + 1, 0);
        self.rows.resize(self.rows.len().max(self.row + 1), (vec![], false));
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

impl TermLike for Wrapping {
    fn width(&self) -> u16 {
        self.0.lock().unwrap().columns as u16
    }
    fn height(&self) -> u16 {
        50
    }
    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        let mut grid = self.0.lock().unwrap();
        grid.row = grid.row.saturating_sub(n);
        Ok(())
    }
    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        let mut grid = self.0.lock().unwrap();
        grid.row = (grid.row + n).min(grid.rows.len() - 1);
        Ok(())
    }
    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        panic!("the display does not need it")
    }
    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        panic!("the display does not need it")
    }
    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)?;
        self.0.lock().unwrap().next_row();
        Ok(())
    }
    fn write_str(&self, text: &str) -> io::Result<()> {
        let mut grid = self.0.lock().unwrap();
        for character in text.chars() {
            match character {
                '\r' => grid.column = 0,
                character => grid.put(character),
            }
        }
        Ok(())
    }
    fn clear_line(&self) -> io::Result<()> {
        let mut grid = self.0.lock().unwrap();
        let row = grid.row;
        (grid.rows[row], grid.column) = ((vec![], false), 0);
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn lines(_: usize, _: usize) -> Vec<String> {
    ["four", "lines", "of", "progress"].map(str::to_owned).to_vec()
}

const SHOWN: [&str; 6] = ["earlier", "output", "four", "lines", "of", "progress"];

#[test]
fn another_width_leaves_no_row_behind_and_takes_none() {
    for widths in [[80, 50], [50, 80], [80, 20], [20, 160], [80, 79]] {
        let terminal = Wrapping::new(widths[0]);
        let screen = Screen::new(terminal.clone(), Resizing::Wraps);
        terminal.write_line("earlier").unwrap();
        terminal.write_line("output").unwrap();
        let block = screen.block();
        block.show(lines);
        for width in widths.into_iter().cycle().skip(1).take(4) {
            terminal.resize(width);
            block.show(lines);
            assert_eq!(terminal.text(), SHOWN, "{widths:?}");
        }
        terminal.resize(widths[1]);
        screen.suspend(|| terminal.write_line("more").unwrap());
        assert_eq!(terminal.text()[..3], ["earlier", "output", "more"], "{widths:?}");
        terminal.resize(widths[0]);
        block.tell("a message", Ink::Bad, Colors::Off);
        terminal.resize(widths[1]);
        block.end("the end");
        let expected = ["earlier", "output", "more", "a message", "the end"];
        assert_eq!(terminal.text(), expected, "{widths:?}");
    }
}

#[test]
fn a_terminal_is_known_by_its_variables() {
    for (names, expected) in [
        (&["VTE_VERSION"][..], Resizing::Wraps),
        (&["TMUX", "STY"], Resizing::Wraps),
        (&["VTE_VERSION", "STY"], Resizing::Cuts),
        (&["VTE_VERSION", "XTERM_VERSION"], Resizing::Cuts),
        (&[], Resizing::Cuts),
    ] {
        assert_eq!(Resizing::of(|name| names.contains(&name)), expected, "{names:?}");
    }
}
