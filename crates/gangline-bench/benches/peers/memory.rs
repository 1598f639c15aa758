//! Measures peak memory by the number of items, while all others wait for the slow first one.

use std::collections::VecDeque;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use gangline::service::Ticket;
use gangline::{BoxError, OrderedRunner, map};

use crate::gangs::Gang;
use crate::options::Options;
use crate::report::{Promise, PromiseVerdict, Report, Table, grouped};

const STRAGGLER: Duration = Duration::from_millis(200);
/// In KiB. The window stays small until the slow item ends, and may then grow; this is the allowance for it.
/// Memory that grew with the number of items would be hundreds of times more.
const ROOM: u64 = 4 << 10;
const OPEN_CALLS: usize = 64;
const STATUS: &str = "/proc/self/status";

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("Peak memory");
    if fs::metadata(STATUS).is_err() {
        report.paragraph("Skipped: this system does not report peak memory.");
        return Ok(());
    }
    let most = options.effort.pick(4, 7, 8);
    let header = "items, in order, the first takes 200 ms";
    compare(report, "items", header, most, |items| peak_of_child("--peak-memory", items))?;
    let header = "calls of a service, 64 at a time";
    let most = options.effort.pick(4, 6, 7);
    compare(report, "calls", header, most, |calls| peak_of_child("--peak-memory-of-calls", calls))
}

/// Tells the peaks of 10^4 to 10^`most` of these.
fn compare(
    report: &mut Report,
    what: &str,
    header: &str,
    most: u32,
    peak: impl Fn(u64) -> Result<u64, BoxError>,
) -> Result<(), BoxError> {
    let counts: Vec<u64> = (4..=most).map(|exponent| 10_u64.pow(exponent)).collect();
    let peaks = counts.iter().map(|&count| peak(count)).collect::<Result<Vec<_>, _>>()?;
    let mut table = Table::new([header, "peak memory"]);
    for (&count, &kilobytes) in counts.iter().zip(&peaks) {
        table.row([grouped(count), format!("{} KiB", grouped(kilobytes))]);
    }
    report.table(&table);
    report.promise(flatness(what, &counts, &peaks));
    Ok(())
}

/// The child process, so that the peak is that of one run.
pub fn report_own_peak(items: u64) -> Result<(), BoxError> {
    let sum = run(items)?;
    assert_eq!(sum, items * (items - 1) / 2, "the sum of {}", Gang::ORDERED.name());
    println!("{}", own_peak()?);
    Ok(())
}

pub fn report_own_peak_of_calls(calls: u64) -> Result<(), BoxError> {
    let same = map(|_| Ok(()), |_, (), x: u64| Ok(x));
    let service = OrderedRunner::new(same, 2)?.into_service();
    let mut open = VecDeque::new();
    for x in 0..calls {
        if open.len() == OPEN_CALLS {
            open.pop_front().map(Ticket::wait).transpose()?;
        }
        open.push_back(service.try_submit(x)?);
    }
    open.into_iter().try_for_each(|ticket| ticket.wait().map(drop))?;
    assert_eq!(service.account().ok, calls, "each call is answered");
    println!("{}", own_peak()?);
    Ok(())
}

fn run(items: u64) -> Result<u64, BoxError> {
    let work = |x| {
        if x == 0 {
            thread::sleep(STRAGGLER);
        }
        x
    };
    let runner = map(|_| Ok(()), move |_, _, x: u64| Ok(work(x))).fold(
        |_| Ok(0),
        |_, sum, x| {
            *sum += x;
            Ok(())
        },
    );
    Ok(Gang::ORDERED.build(runner, 2)?.run(0..items)?)
}

fn peak_of_child(option: &str, count: u64) -> Result<u64, BoxError> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args([option, &count.to_string()]).stderr(Stdio::inherit());
    let output = child.output()?;
    if !output.status.success() {
        return Err(format!("{option} {count}: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

fn own_peak() -> Result<u64, BoxError> {
    let status = fs::read_to_string(STATUS)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kilobytes.ok_or("no peak memory in the status of this process")?.parse()?)
}

fn flatness(what: &str, counts: &[u64], peaks: &[u64]) -> Promise {
    let bound = peaks[0] + ROOM;
    let last = peaks[peaks.len() - 1];
    let (few, many) = (grouped(counts[0]), grouped(counts[counts.len() - 1]));
    Promise {
        what: format!("peak memory of {many} {what}: that of {few}, and {} KiB", grouped(ROOM)),
        promised: format!("at most {} KiB", grouped(bound)),
        aim: None,
        measured: format!("{} KiB", grouped(last)),
        verdict: PromiseVerdict::of(last <= bound),
    }
}
