//! `gangline workers`: the workers of a cluster, as a table or as JSON.

use crate::args::cluster::WorkersArgs;
use crate::error::CliError;

#[cfg(not(feature = "nats"))]
pub(crate) fn show(_: &WorkersArgs) -> Result<Vec<u8>, CliError> {
    let text = "this build cannot ask a broker: it was compiled without its feature `nats`";
    Err(CliError::new(crate::exit::USAGE, text))
}

#[cfg(feature = "nats")]
pub(crate) use self::listed::show;

#[cfg(feature = "nats")]
mod listed {
    use std::fmt::Write;
    use std::time::{Duration, SystemTime};

    use gangline_nats::{WorkerInfo, workers};
    use humantime::{format_duration, format_rfc3339_seconds};
    use serde_json::{Value, json};

    use super::{CliError, WorkersArgs};
    use crate::broker::{broker, nats};
    use crate::exit;

    const WIDTH: usize = 80;

    pub(crate) fn show(args: &WorkersArgs) -> Result<Vec<u8>, CliError> {
        let nats = nats(broker(args.nats.as_deref())?, None);
        let workers = workers(&nats).map_err(|error| CliError::new(exit::INPUT, error))?;
        Ok(if args.json {
            let all: Vec<Value> = workers.iter().map(as_json).collect();
            format!("{:#}\n", Value::Array(all)).into_bytes()
        } else {
            as_text(&workers, SystemTime::now()).into_bytes()
        })
    }

    fn as_json(worker: &WorkerInfo) -> Value {
        let WorkerInfo { id, host, pid, devices, recipes, started, last_seen, runs, .. } = worker;
        let recipes = recipes.iter().map(|it| json!({ "name": it.name, "version": it.version }));
        json!({
            "id": id,
            "host": host,
            "pid": pid,
            "devices": devices,
            "recipes": recipes.collect::<Vec<_>>(),
            "started": format_rfc3339_seconds(*started).to_string(),
            "last_seen": format_rfc3339_seconds(*last_seen).to_string(),
            "runs": runs,
        })
    }

    /// A line for each recipe of each worker. Too long a text is cut, and ends in `~`.
    fn as_text(workers: &[WorkerInfo], now: SystemTime) -> String {
        if workers.is_empty() {
            return "no worker is there\n".to_owned();
        }
        let mut rows = vec![
            ["HOST", "PID", "DEVICES", "RECIPE", "VERSION", "RUNS", "STARTED"].map(str::to_owned),
        ];
        for worker in workers {
            let since = now.duration_since(worker.started).unwrap_or_default();
            for recipe in &worker.recipes {
                rows.push([
                    worker.host.clone(),
                    worker.pid.to_string(),
                    worker.devices.clone(),
                    recipe.name.clone(),
                    recipe.version.clone(),
                    worker.runs.to_string(),
                    format!("{} ago", rough(since)),
                ]);
            }
        }
        let mut text = String::new();
        let widths = widths(&rows);
        for row in rows {
            let cells =
                row.iter().zip(widths).map(|(cell, width)| format!("{:width$}", cut(cell, width)));
            let line = cells.collect::<Vec<_>>().join("  ");
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    /// The widths of the columns. The widest one gives way until a line fits.
    fn widths<const N: usize>(rows: &[[String; N]]) -> [usize; N] {
        let widest = |at: usize| rows.iter().map(|row| row[at].chars().count()).max();
        let mut widths = std::array::from_fn(|at| widest(at).unwrap_or_default());
        while widths.iter().sum::<usize>() + 2 * (N - 1) > WIDTH {
            let most = widths.iter_mut().max().expect("there are columns");
            *most -= 1;
        }
        widths
    }

    fn cut(text: &str, width: usize) -> String {
        match text.chars().count() > width {
            true => text.chars().take(width - 1).chain(['~']).collect(),
            false => text.to_owned(),
        }
    }

    /// In its two largest units.
    fn rough(time: Duration) -> String {
        let text = format_duration(Duration::from_secs(time.as_secs())).to_string();
        text.split(' ').take(2).collect::<Vec<_>>().join(" ")
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_line_of_long_names_fits_a_terminal() {
            let rows = [["x".repeat(90), "cuda:0".to_owned(), "y".repeat(40)]];
            let widths = widths(&rows);
            assert_eq!(widths.iter().sum::<usize>() + 4, WIDTH);
            assert_eq!(widths[1], 6);
            assert_eq!(cut("abcdef", 4), "abc~");
            assert_eq!(rough(Duration::from_millis(93_784_500)), "1day 2h");
        }
    }
}
