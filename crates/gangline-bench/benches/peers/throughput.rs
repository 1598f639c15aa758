//! Measures the time per item of all subjects, by the work on it.

use gangline::BoxError;

use crate::contest::Heats;
use crate::effort::Effort;
use crate::options::Options;
use crate::report::{Report, Table, number};
use crate::subject::{Kind, Subject};
use crate::subjects;
use crate::work::Amount;
use crate::{plot, promises};

/// In nanoseconds per item.
pub struct Throughput {
    pub amounts: Vec<Amount>,
    pub kinds: Vec<Kind>,
    /// For each amount of work, the times of all subjects.
    heats: Vec<Heats>,
    threads: usize,
}

impl Throughput {
    /// The least of the rounds.
    pub fn of(&self, kind: Kind, amount: Amount) -> Option<f64> {
        Some(self.heats(amount)?.least(self.column(kind)?))
    }

    /// The median of the rounds.
    pub fn median(&self, kind: Kind, amount: Amount) -> Option<f64> {
        Some(self.heats(amount)?.median(self.column(kind)?))
    }

    /// How many times as fast as a peer, in the same round.
    pub fn ratio(&self, kind: Kind, peer: Kind, amount: Amount) -> Option<f64> {
        Some(self.heats(amount)?.ratio(self.column(kind)?, self.column(peer)?))
    }

    /// Whether threads lacked cores of their own, so that parallel subjects cannot be judged.
    pub fn is_disturbed(&self, amount: Amount) -> bool {
        let ratio = self.ratio(Kind::SplitLoop, Kind::PlainLoop, amount);
        // With less work, the time to start threads matters.
        amount.time >= Amount::NS_60.time && ratio.is_some_and(|free| free < self.wanted())
    }

    /// Plain loops on all threads must be this many times as fast as one; otherwise they share cores.
    fn wanted(&self) -> f64 {
        0.9 * self.threads as f64
    }

    fn heats(&self, amount: Amount) -> Option<&Heats> {
        let row = self.amounts.iter().position(|&other| other == amount)?;
        Some(&self.heats[row])
    }

    fn column(&self, kind: Kind) -> Option<usize> {
        self.kinds.iter().position(|&other| other == kind)
    }
}

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("Time per item");
    let mut subjects = subjects::all(options)?;
    let throughput = contest(options, &mut subjects);
    explain(&throughput, report);
    for amounts in options.amounts.chunks(4) {
        report.table(&table(&throughput, amounts));
    }
    warn_of_neighbours(options, &throughput, report);
    promises::check(options, &throughput, report);
    match &options.out {
        Some(folder) => plot::time_per_item(&throughput, options.threads, folder),
        None => Ok(()),
    }
}

fn contest(options: &Options, subjects: &mut [Box<dyn Subject>]) -> Throughput {
    let heats = options.amounts.iter().map(|amount| {
        eprintln!("work {}: {} subjects, {} rounds", amount.name, subjects.len(), options.rounds);
        let items = options.effort.items(amount.time);
        let work = options.effort.work(amount.time);
        Heats::of_items(subjects, items, work, options.rounds)
    });
    Throughput {
        heats: heats.collect(),
        amounts: options.amounts.clone(),
        threads: options.threads,
        kinds: subjects.iter().map(|subject| subject.kind()).collect(),
    }
}

fn explain(throughput: &Throughput, report: &mut Report) {
    report.paragraph(
        "Nanoseconds per item, by the work on it: the least of the rounds, and after the tilde \
         their median. In brackets: how many times as fast as the plain loop, and as rayon's `par_bridge`, in the same round; the median of the \
         rounds.",
    );
    if !throughput.kinds.contains(&Kind::Easycore) {
        report.paragraph("Skipped: easycore, which is measured if `python3` can import it.");
    }
}

fn warn_of_neighbours(options: &Options, throughput: &Throughput, report: &mut Report) {
    let is_disturbed = |amount: &&Amount| throughput.is_disturbed(**amount);
    let rows: Vec<_> = options.amounts.iter().filter(is_disturbed).map(|row| row.name).collect();
    if options.effort != Effort::Smoke && !rows.is_empty() {
        report.paragraph(&format!(
            "**Do not trust the column{} {}:** something else was running, or there are too few cores. A \
             plain loop on each of {} threads was not even {} times as fast as one.",
            if rows.len() == 1 { "" } else { "s" },
            rows.join(", "),
            options.threads,
            throughput.wanted(),
        ));
    }
}

fn table(throughput: &Throughput, amounts: &[Amount]) -> Table {
    let header = ["", "gives results"].into_iter().chain(amounts.iter().map(|amount| amount.name));
    let mut table = Table::new(header);
    for &kind in &throughput.kinds {
        let figures = amounts.iter().map(|&amount| cell(throughput, kind, amount));
        let names = [kind.name().to_owned(), kind.manner().to_owned()];
        table.row(names.into_iter().chain(figures));
    }
    table
}

fn cell(throughput: &Throughput, kind: Kind, amount: Amount) -> String {
    let ratio = |peer| throughput.ratio(kind, peer, amount).map_or("-".to_owned(), brief);
    let time = |time: Option<f64>| time.map_or("-".to_owned(), number);
    let (least, median) = (throughput.of(kind, amount), throughput.median(kind, amount));
    let (least, median) = (time(least), time(median));
    format!("{least} ~ {median} ({} / {})", ratio(Kind::PlainLoop), ratio(Kind::ParBridge))
}

fn brief(ratio: f64) -> String {
    match ratio {
        0.0..0.001 => "<0.001".to_owned(),
        0.001..0.1 => format!("{ratio:.3}"),
        0.1..10.0 => format!("{ratio:.2}"),
        _ => format!("{ratio:.0}"),
    }
}
