//! What help and manual pages explain after the options.

use std::fmt::Write;

/// A part of a page.
pub(crate) struct HelpSection {
    pub(crate) title: &'static str,
    pub(crate) blocks: &'static [HelpBlock],
}

pub(crate) enum HelpBlock {
    Text(&'static str),
    /// Terms and their meanings. A line of both has at most 80 columns, so that it is not wrapped.
    Terms(&'static [(&'static str, &'static str)]),
    /// What an example does, and its command.
    Example(&'static str, &'static str),
}

/// The commands with a page of their own.
pub(crate) const PAGES: [&str; 11] = [
    "run",
    "check",
    "dockerfile",
    "serve",
    "worker",
    "workers",
    "devices",
    "config",
    "report",
    "completions",
    "man",
];

/// The sections of `gangline run`.
pub(crate) const RUN: &[HelpSection] = &[EXAMPLES, SOURCES, MARKS, NO_SHELL, STATUSES];

/// The sections of `gangline`.
pub(crate) const MAIN: &[HelpSection] = &[EXAMPLES, STATUSES];

/// The sections of `gangline check`.
pub(crate) const CHECK: &[HelpSection] = &[CHECK_EXAMPLES, CHECK_RULES, CHECK_STATUSES];

/// The sections of `gangline dockerfile`.
pub(crate) const DOCKERFILE: &[HelpSection] = &[DOCKERFILE_EXAMPLES, DOCKERFILE_STATUSES];

/// The sections of `gangline serve`.
pub(crate) const SERVE: &[HelpSection] = &[REQUESTS, SERVE_STATUSES];

/// The sections of `gangline worker`.
pub(crate) const WORKER: &[HelpSection] = &[SUPERVISION, WORKER_STATUSES];

/// The sections of `gangline workers`.
pub(crate) const WORKERS: &[HelpSection] = &[LISTING, WORKERS_STATUSES];

/// What `-h` says after the options.
pub(crate) const SHORT: &str = "\
Example: ls *.raw | gangline run -j 4 -- convert {} {.}.png

These are the options that are used most. `gangline run --help` explains all, with marks such as {.}, more \
examples, and the exit statuses.";

const EXAMPLES: HelpSection = HelpSection {
    title: "Examples",
    blocks: &[
        HelpBlock::Example(
            "Compress files, one at a time on each core:",
            "gangline run -- gzip -9 ::: *.log",
        ),
        HelpBlock::Example(
            "Convert the files that a command lists, four at a time:",
            "find . -name '*.raw' -print0 | gangline run -0 -j 4 -- convert {} {.}.png",
        ),
        HelpBlock::Example(
            "See the commands first, and start none:",
            "gangline run --dry-run -- convert {} small/{/.}.png ::: photos/*.raw",
        ),
        HelpBlock::Example(
            "A GPU for each job, which the program takes as an argument:",
            "gangline run --gpu-list 0-3 -- motioncor -In {} -Gpu {gpu} ::: *.mrc",
        ),
        HelpBlock::Example(
            "Each with each:",
            "gangline run -- ./sim {1} --seed {2} ::: small large ::: 1 2 3",
        ),
        HelpBlock::Example(
            "The columns of a table:",
            "gangline run --csv runs.csv -- ./sim {name} --size={size}",
        ),
        HelpBlock::Example(
            "A script of the shell, which has the input as \"$1\":",
            "gangline run --shell 'sort \"$1\" | uniq -c > \"$1.counts\"' ::: *.txt",
        ),
        HelpBlock::Example(
            "Run again what failed or is missing:",
            "gangline run --journal run.journal --resume --input list.txt -- ./step",
        ),
    ],
};

const SOURCES: HelpSection = HelpSection {
    title: "Inputs after the command",
    blocks: &[HelpBlock::Terms(&[
        (":::  a b", "each word is an input; several ::: give all combinations"),
        (":::: f g", "each word is a file with an input on each line; - is standard input"),
        (":::+ a b", "in step with the source before, not each with each; ::::+ for files"),
    ])],
};

const MARKS: HelpSection = HelpSection {
    title: "Marks in the command",
    blocks: &[
        HelpBlock::Text("Without any mark, the inputs become the last words."),
        HelpBlock::Terms(&[
            ("{}", "the input, or all inputs of the job, each a word"),
            ("{.} {..}", "without its extension, or its last two; up to {...}"),
            ("{/} {//}", "its last component as a path, and the path before that"),
            ("{/.}", "its last component without its extension; up to {/...}"),
            ("{+.} {+/}", "its extension, up to {+...}, and the path before {/}"),
            ("{2} {-1}", "the second input of the job, and the last one"),
            ("{name}", "the column of that name"),
            ("{2/.}", "one input or column with an operator; {name/.} too"),
            ("{%.gz} {:2}", "with --plus: without that end; from the third character on"),
            ("{/a/b}", "with --plus: b instead of the first a; {//a/b} of each a"),
            ("{#} {##}", "the number of the job, from 1, and the number of all jobs"),
            ("{%}", "the number of the slot, from 1; {worker} counts from 0"),
            ("{attempt}", "the number of the attempt, from 1"),
            ("{gpu}", "the ids of the slot's GPUs; %(GPU)s is the same"),
            ("{{gpu}}", "the text {gpu}; %%(GPU)s the text %(GPU)s"),
        ]),
    ],
};

const NO_SHELL: HelpSection = HelpSection {
    title: "No shell",
    blocks: &[HelpBlock::Text(
        "A command is split into words before marks are replaced, and no shell runs it: an input is always an \
             argument. NAME=VALUE words before the program set variables. If the command has a mark for GPUs, the \
             mark passes their ids; otherwise CUDA_VISIBLE_DEVICES is set to them.",
    )],
};

const STATUSES: HelpSection = HelpSection {
    title: "Exit status",
    blocks: &[HelpBlock::Terms(&[
        ("0", "every job succeeded"),
        ("1 - 100", "this number of jobs failed"),
        ("101", "more than 100 jobs failed"),
        ("102", "a wrong option, mark or file; a limit too low; a refused system call"),
        ("103", "a device is missing, hidden or in use; or no warm worker is left"),
        ("104", "the input could not be read to its end"),
        ("105", "the journal was refused, or could not be written"),
        ("106", "output could not be written; or the end of a warm worker was cut off"),
        ("107", "a bug in gangline"),
        ("129", "SIGHUP"),
        ("130", "SIGINT, as by Ctrl-C"),
        ("131", "SIGQUIT, as by Ctrl-\\"),
        ("137", "the process that runs the jobs was killed, and its jobs with it"),
        ("141", "the reader of the output is gone"),
        ("143", "SIGTERM"),
    ])],
};

const CHECK_EXAMPLES: HelpSection = HelpSection {
    title: "Examples",
    blocks: &[
        HelpBlock::Example(
            "Check a model on a GPU, in lists of up to 64:",
            "gangline check --devices cuda:0 --batch 64 -- python3 predict.py ::: *.jpg",
        ),
        HelpBlock::Example(
            "The same with samples in JSON, one on each line of a file:",
            "gangline check --jsonl -- python3 predict.py :::: samples.jsonl",
        ),
    ],
};

const CHECK_RULES: HelpSection = HelpSection {
    title: "What is checked",
    blocks: &[
        HelpBlock::Text(
            "Each sample is asked for alone, twice, and then in lists of 1, 2, 4 and so on, up to the size of --batch. \
             Its answer must be the same each time. Whole numbers of up to 64 bits are compared exactly, other numbers within \
             --tolerance. A sample may fail: it then has to fail in lists too, and no other with it. Have one that fails \
             among the samples.",
        ),
        HelpBlock::Text(
            "The table has the least time of several lists of each size. The size that is advised is the smallest with at \
             least 95 % of the best rate, among those below the first at which something does not hold or memory runs \
             out.",
        ),
    ],
};

const CHECK_STATUSES: HelpSection = HelpSection {
    title: "Exit status",
    blocks: &[HelpBlock::Terms(&[
        ("0", "everything that the samples could show holds"),
        ("1", "something does not hold"),
        ("102", "a wrong option or mark; a limit too low; a refused system call"),
        ("103", "a device is missing or hidden; or no worker got ready"),
        ("104", "the samples could not be read, or there are none"),
        ("106", "the text could not be written; or the end of a worker was cut off"),
        ("107", "a bug in gangline"),
        ("129 - 143", "a signal, as for `gangline run`"),
    ])],
};

const DOCKERFILE_EXAMPLES: HelpSection = HelpSection {
    title: "Examples",
    blocks: &[
        HelpBlock::Example(
            "Write Dockerfile and .dockerignore for a model on a GPU, in lists of up to 8:",
            "gangline dockerfile --gpu --batch 8 --write predict.py resnet50.pt labels/",
        ),
        HelpBlock::Text(
            "Packages of requirements.txt are installed if it is in this folder. The image has a user of its own, 10001. The \
             program comes from the wheel of a release; docs/command-line.md says how to build with a wheel of yours.",
        ),
    ],
};

const DOCKERFILE_STATUSES: HelpSection = HelpSection {
    title: "Exit status",
    blocks: &[HelpBlock::Terms(&[
        ("0", "it is printed or written"),
        ("102", "an option is invalid, or a file is missing or outside of this folder"),
        ("106", "it could not be written, or is there already"),
    ])],
};

const REQUESTS: HelpSection = HelpSection {
    title: "Requests",
    blocks: &[
        HelpBlock::Example(
            "Serve a model on each GPU, in batches of up to 8:",
            "gangline serve --devices cuda:all --batch 8 -- python3 predict.py",
        ),
        HelpBlock::Example(
            "Ask for one answer, or for several:",
            "curl -H content-type:application/json -d '[1,2,3]' localhost:8080/predict",
        ),
        HelpBlock::Terms(&[
            ("POST /predict", "a JSON value, or an array of values; or bytes"),
            ("GET  /health/live", "200 while the program runs"),
            ("GET  /health/ready", "503 while workers load, and after SIGTERM"),
            ("GET  /metrics", "figures for Prometheus"),
            ("GET  /stats", "figures of the page, as JSON"),
            ("GET  /", "a page with these figures, and a form"),
        ]),
        HelpBlock::Text(
            "The workers are those of `gangline run --warm`. docs/serving.md has the statuses of answers, a \
             container, and a proxy with TLS.",
        ),
        HelpBlock::Text(
            "SIGTERM or SIGINT lets accepted requests be answered, and then ends the program. A second signal ends it at \
             once. SIGHUP replaces each worker by a new one; if it comes from a terminal that is closed, it ends the program.",
        ),
    ],
};

const SERVE_STATUSES: HelpSection = HelpSection {
    title: "Exit status",
    blocks: &[HelpBlock::Terms(&[
        ("0", "a signal has ended it, and each accepted request was answered"),
        ("102", "an option is invalid, or the address is not free"),
        ("103", "a device is missing or in use; or too few workers are left"),
        ("106", "the end of a worker was cut off"),
        ("107", "a bug in gangline"),
        ("129", "SIGHUP, and requests were cut off, or answers were not read"),
        ("130", "SIGINT, and requests were cut off, or answers were not read"),
        ("131", "SIGQUIT, as by Ctrl-\\"),
        ("137", "the process that serves was killed, and its workers with it"),
        ("143", "SIGTERM, and requests were cut off, or answers were not read"),
    ])],
};

const SUPERVISION: HelpSection = HelpSection {
    title: "Start and end",
    blocks: &[
        HelpBlock::Example(
            "Work on all GPUs of this machine:",
            "gangline worker --nats nats://broker:4222 --devices cuda:all -- ./app",
        ),
        HelpBlock::Text(
            "The program reads its other variables from the environment, such as GANGLINE_NATS_CREDENTIALS: see \
             docs/cluster.md. Set GANGLINE_NATS if the address has a password: options are visible to all users of the \
             machine until this program has moved them into its environment, and to the history of the shell.",
        ),
        HelpBlock::Text(
            "SIGTERM, SIGINT or SIGHUP lets the worker finish what it has begun and hand back the rest. A second \
             signal kills it. Programs that a crashed worker leaves behind are killed. If this process is killed, \
             the worker ends as by SIGTERM.",
        ),
    ],
};

const WORKER_STATUSES: HelpSection = HelpSection {
    title: "Exit status",
    blocks: &[HelpBlock::Terms(&[
        ("0", "the worker has ended in order, or a signal came while none was running"),
        ("78", "the worker has said that its setup is wrong; the reason is above"),
        ("102", "an option is invalid, or no broker is named"),
        ("126", "the program cannot be started"),
        ("127", "the program is not there"),
        ("137", "a second signal has killed the worker"),
        ("other", "the worker has ended with this status after a signal"),
    ])],
};

const LISTING: HelpSection = HelpSection {
    title: "List",
    blocks: &[HelpBlock::Text(
        "A line for each recipe of each worker. The variables of a worker count, such as GANGLINE_NATS_CREDENTIALS: see \
         docs/cluster.md. The user needs the rights of a coordinator. A worker that was killed is listed for up to a \
         minute.",
    )],
};

const WORKERS_STATUSES: HelpSection = HelpSection {
    title: "Exit status",
    blocks: &[HelpBlock::Terms(&[
        ("0", "the workers are listed, or there are none"),
        ("102", "an option is invalid, or no broker is named"),
        ("104", "the broker does not answer, or refuses"),
        ("106", "the list could not be written"),
    ])],
};

/// The sections as text, for a terminal.
pub(crate) fn text(sections: &[HelpSection]) -> String {
    let mut text = String::new();
    for HelpSection { title, blocks } in sections {
        let _ = writeln!(text, "{}{title}:", if text.is_empty() { "" } else { "\n" });
        for block in *blocks {
            let _ = match block {
                HelpBlock::Text(paragraph) => writeln!(text, "{paragraph}"),
                HelpBlock::Example(what, command) => writeln!(text, "  {what}\n      {command}"),
                HelpBlock::Terms(terms) => terms.iter().try_for_each(|(term, meaning)| {
                    writeln!(text, "  {term:<width$}  {meaning}", width = width(terms))
                }),
            };
        }
    }
    text.truncate(text.trim_end().len());
    text
}

fn width(terms: &[(&str, &str)]) -> usize {
    terms.iter().map(|(term, _)| term.len()).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wrapped_in_a_terminal_of_usual_width() {
        let is_paragraph = |line: &&str| !line.starts_with(' ');
        let all = [RUN, CHECK, DOCKERFILE, SERVE, WORKER, WORKERS].map(text).join("\n");
        for line in all.lines().filter(|line| !is_paragraph(line)) {
            assert!(line.len() <= 80, "{line}");
        }
    }
}
