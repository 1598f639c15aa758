//! Where, when and how a run took place.

use super::markup::{push, section as begin};
use crate::observe::provenance::Provenance;
use crate::observe::report::run_report::RunReport;
use crate::observe::report::text::Html;

pub(super) fn section(report: &RunReport) -> String {
    let provenance = &report.provenance;
    let Provenance { host, system, cores, gangline, command, devices, settings, .. } = provenance;
    let mut facts: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: Option<&str>| {
        facts.extend(value.map(|value| (name.to_owned(), Html(value).to_string())));
    };
    add("started", provenance.started_text().as_deref());
    add("host", host.as_deref());
    add("system", system.as_deref());
    add("cores", cores.map(|cores| cores.to_string()).as_deref());
    add("gangline", gangline.as_deref());
    devices.iter().for_each(|(device, model)| add(device, Some(model)));
    settings.iter().for_each(|(setting, value)| add(setting, Some(value)));
    if !command.is_empty() {
        let command = format!("<code>{}</code>", Html(&provenance.command_line()));
        facts.push(("command".to_owned(), command));
    }
    if facts.is_empty() {
        return String::new();
    }
    let mut list = "<dl class=\"facts\">\n".to_owned();
    for (name, value) in facts {
        push(&mut list, format_args!("<div><dt>{}</dt><dd>{value}</dd></div>\n", Html(&name)));
    }
    begin("How it was run", &(list + "</dl>\n")) + "</section>\n"
}
