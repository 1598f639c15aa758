//! The findings as text, at 80 columns.

use std::fmt::Write;

use crate::check::findings::{Findings, FoundFault, JudgedLaw};
use crate::check::memory::MemoryOf;
use crate::check::slot::CheckedSlot;
use crate::plain::Plain;
use gangline::report::HumanDuration;
use gangline::testing::{BatchSize, LawState};

const WIDTH: usize = 80;

/// The width of the column with the states of laws. The lines below a law are indented beyond it.
const STATE: usize = 11;

/// The largest number of faults that are shown for a law. JSON has all of them.
const MOST_SHOWN: usize = 3;

/// The largest number of lines of a fault. The rest is cut off.
const MOST_LINES: usize = 4;

pub(super) fn of(findings: &Findings) -> String {
    let mut text = heading(findings);
    for law in &findings.laws {
        text += &law_text(findings, law);
    }
    for slot in &findings.slots {
        text += &slot_text(slot);
    }
    text
}

fn heading(findings: &Findings) -> String {
    let failing = match findings.failing().count() {
        0 => String::new(),
        1 => ", of which 1 fails".to_owned(),
        failing => format!(", of which {failing} fail"),
    };
    let mut text = wrapped(&Plain(&findings.command).to_string(), 0);
    let samples = if findings.samples == 1 { "sample" } else { "samples" };
    let _ = writeln!(
        text,
        "{} {samples}{failing}; lists of up to {}; tolerance {}\n",
        findings.samples, findings.most, findings.tolerance
    );
    text
}

fn law_text(findings: &Findings, law: &JudgedLaw) -> String {
    let state = match law.state {
        LawState::Held => "holds",
        LawState::Broken => "BROKEN",
        _ => "unchecked",
    };
    let mut text = format!("{state:<STATE$}{}\n", law.demand.sentence());
    if law.state == LawState::Unchecked {
        text += &wrapped(law.hint, STATE + 2);
    }
    for fault in law.faults.iter().take(MOST_SHOWN) {
        text += &wrapped(&fault_text(findings, fault), STATE + 2);
    }
    let more = law.faults.len().saturating_sub(MOST_SHOWN);
    if more > 0 {
        text += &wrapped(&format!("and {more} more"), STATE + 2);
    }
    text
}

fn fault_text(findings: &Findings, fault: &FoundFault) -> String {
    let text = Plain(&fault.text).to_string();
    match findings.slots.len() {
        0 | 1 => text,
        _ => format!("{}: {text}", findings.slots[fault.slot].name),
    }
}

fn slot_text(slot: &CheckedSlot) -> String {
    let mut text = format!("\n{}, ready after {}\n", slot.name, HumanDuration(slot.ready));
    if slot.report.sizes.is_empty() {
        return text;
    }
    let memory = match slot.memory_of {
        _ if slot.memory.is_empty() => "",
        MemoryOf::Gpus => "GPU memory",
        MemoryOf::Worker => "memory",
    };
    text += &row(["size", "lists", "seconds a list", "samples a second", memory]);
    for size in &slot.report.sizes {
        text += &size_text(slot, size);
    }
    text += &match slot.report.advised() {
        1 => "\nadvice: no --batch\n".to_owned(),
        size => {
            format!(
                "\nadvice: --batch {size}, the smallest size that holds with 95 % of the best rate\n"
            )
        }
    };
    text
}

fn size_text(slot: &CheckedSlot, found: &BatchSize) -> String {
    let (size, lists) = (found.size.to_string(), found.lists.to_string());
    if !found.fits {
        return row([&size, &lists, "out of memory", "", ""]);
    }
    let seconds = found.least.map_or_else(|| "-".to_owned(), |least| figure(least.as_secs_f64()));
    let rate = found.rate().map_or_else(|| "-".to_owned(), figure);
    let memory = slot.memory.get(&found.size).map(|bytes| size_of_memory(*bytes));
    row([&size, &lists, &seconds, &rate, &memory.unwrap_or_default()])
}

fn row(cells: [&str; 5]) -> String {
    let widths = [9, 7, 16, 18, 13];
    let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}"));
    let line = cells.collect::<String>();
    format!("{}\n", line.trim_end())
}

/// Formats a number with three significant digits.
fn figure(value: f64) -> String {
    let digits = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        value if value >= 0.1 => 3,
        value if value >= 0.01 => 4,
        value if value >= 0.001 => 5,
        _ => 6,
    };
    format!("{value:.digits$}")
}

fn size_of_memory(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib >= 1_024.0 { format!("{:.1} GiB", mib / 1_024.0) } else { format!("{mib:.0} MiB") }
}

/// Breaks a text into lines of at most 80 columns, each behind `indent` spaces.
fn wrapped(text: &str, indent: usize) -> String {
    let most = WIDTH - indent;
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        let last = lines.last_mut().expect("there is a line");
        let used = last.chars().count();
        if used > 0 && used + 1 + word.len() > most {
            lines.push(String::new());
        } else if used > 0 {
            last.push(' ');
        }
        while word.len() > most {
            let rest = word.split_off(most);
            lines.last_mut().expect("there is a line").extend(word);
            lines.push(String::new());
            word = rest;
        }
        lines.last_mut().expect("there is a line").extend(word);
    }
    if lines.len() > MOST_LINES {
        lines.truncate(MOST_LINES);
        let last = lines.last_mut().expect("there is a line");
        *last = last.chars().take(most - 3).chain("...".chars()).collect();
    }
    lines.iter().map(|line| format!("{:indent$}{line}\n", "")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_has_more_than_80_columns() {
        for text in ["a ".repeat(200), "x".repeat(1_000), format!("a {} b", "y".repeat(90))] {
            let lines = wrapped(text.trim_end(), 13);
            assert!(lines.lines().all(|line| line.chars().count() <= 80), "{lines}");
            assert!(lines.lines().count() <= MOST_LINES, "{lines}");
        }
        assert_eq!(wrapped("a b", 2), "  a b\n");
    }

    #[test]
    fn figures_have_three_digits_that_count() {
        let figures = [1234.0, 56.78, 0.0234, 0.000_012].map(figure);
        assert_eq!(figures, ["1234", "56.8", "0.0234", "0.000012"]);
        assert_eq!(size_of_memory(3 << 29), "1.5 GiB");
        assert_eq!(size_of_memory(7 << 20), "7 MiB");
    }
}
