//! `gangline man`: manual pages, one for each command.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use crate::args;
use crate::args::sections::{
    CHECK, DOCKERFILE, HelpBlock, MAIN, RUN, SERVE, WORKER, WORKERS, blocks,
};

/// What each page has at its foot.
const VERSION: &str = concat!("gangline ", env!("CARGO_PKG_VERSION"));

/// The page of a command, or of the program.
pub(crate) fn page(command: Option<&str>) -> io::Result<Vec<u8>> {
    let all = commands();
    let name =
        command.map_or_else(|| "gangline".to_owned(), |command| format!("gangline-{command}"));
    let command = all.iter().find(|command| title(command) == name);
    render(command.unwrap_or(&all[0]))
}

/// Writes all pages into a directory.
pub(crate) fn write_all(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for command in commands() {
        fs::write(directory.join(format!("{}.1", title(&command))), render(&command)?)?;
    }
    Ok(())
}

/// The program, and its commands that are not hidden.
fn commands() -> Vec<Command> {
    let mut command = args::all().disable_help_subcommand(true);
    command.build();
    let all = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let all: Vec<Command> = all.collect();
    [vec![command], all].concat()
}

/// `gangline-run`, as manual pages are called.
fn title(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn render(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    // An empty date has to be quoted: `man` would take the version for it. A page has none, so that each build writes the
    // same. A command has no version of its own.
    let man = Man::new(command.clone()).date("\"\"").source(VERSION).manual("User Commands");
    let has_commands = command.has_subcommands();
    man.render_title(&mut page)?;
    // A variable or an option that is divided at the end of a line could not be copied.
    Roff::default().control("nh", []).to_writer(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis(command).to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    let sections = match command.get_name() {
        _ if has_commands => MAIN,
        "run" => RUN,
        "check" => CHECK,
        "dockerfile" => DOCKERFILE,
        "serve" => SERVE,
        "worker" => WORKER,
        "workers" => WORKERS,
        _ => "",
    };
    explained(sections).to_writer(&mut page)?;
    see_also(command).to_writer(&mut page)?;
    Ok(page)
}

fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let mut roff = Roff::default();
    roff.control("SH", ["SYNOPSIS"]);
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    match usage.strip_prefix(name) {
        Some(rest) => roff.text([bold(name), roman(rest)]),
        None => roff.text([roman(usage)]),
    };
    roff
}

fn explained(text: &'static str) -> Roff {
    let mut roff = Roff::default();
    for block in blocks(text) {
        match block {
            HelpBlock::Title(title) => _ = roff.control("SH", [&*title.to_uppercase()]),
            HelpBlock::Text(paragraph) => {
                roff.control("PP", []);
                roff.text([roman(paragraph)]);
            }
            HelpBlock::Term(term, meaning) => {
                roff.control("TP", ["12"]);
                roff.text([bold(term)]);
                roff.text([roman(meaning)]);
            }
            HelpBlock::Example(what, example) => {
                roff.control("PP", []);
                roff.text([roman(what)]);
                roff.control("PP", []);
                roff.control("RS", ["4"]);
                roff.control("nf", []);
                roff.text([bold(example)]);
                roff.control("fi", []);
                roff.control("RE", []);
            }
        }
    }
    roff
}

fn see_also(command: &Command) -> Roff {
    let names =
        commands().iter().map(title).filter(|name| *name != title(command)).collect::<Vec<_>>();
    let mut roff = Roff::default();
    roff.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    for (at, name) in names.into_iter().enumerate() {
        line.push(roman(if at > 0 { ", " } else { "" }));
        line.push(italic(name));
        line.push(roman("(1)"));
    }
    roff.text(line);
    roff
}
