//! Checks JSON against the schema of reports.
//!
//! It knows the keywords that the schema uses, and refuses others. A crate that knows all of them takes a minute
//! to build.

use serde_json::Value;

use super::RunReport;
use super::gpu_load::{GpuLoad, GpuSample};
use super::samples::{PlayedRun, eventful};
use super::stages::{self, StagePart};
use crate::account::Account;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../docs/report.schema.json")).unwrap()
}

/// Checks a value; a property that the schema does not name is an error too.
fn check(value: &Value, schema: &Value, root: &Value, at: &str) -> Result<(), String> {
    for (keyword, wanted) in schema.as_object().unwrap() {
        let fits = match keyword.as_str() {
            "$schema"
            | "$defs"
            | "title"
            | "description"
            | "properties"
            | "additionalProperties" => true,
            "$ref" => {
                let name = wanted.as_str().unwrap().strip_prefix("#").unwrap();
                check(value, root.pointer(name).unwrap(), root, at)?;
                true
            }
            "type" => match wanted {
                Value::Array(types) => types.iter().any(|name| is_of(value, name)),
                name => is_of(value, name),
            },
            "const" => value == wanted,
            "enum" => wanted.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|number| number >= wanted.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= wanted.as_f64().unwrap()),
            "anyOf" => {
                let schemas = wanted.as_array().unwrap();
                schemas.iter().any(|schema| check(value, schema, root, at).is_ok())
            }
            "required" => {
                let names = wanted.as_array().unwrap();
                value.as_object().is_none_or(|object| {
                    names.iter().all(|name| object.contains_key(name.as_str().unwrap()))
                })
            }
            "items" => {
                let elements = value.as_array().into_iter().flatten();
                elements.enumerate().try_for_each(|(index, element)| {
                    check(element, wanted, root, &format!("{at}/{index}"))
                })?;
                true
            }
            other => panic!("the check knows no {other}"),
        };
        if !fits {
            return Err(format!("{at}: {value} is not {keyword} {wanted}"));
        }
    }
    check_properties(value, schema, root, at)
}

fn check_properties(value: &Value, schema: &Value, root: &Value, at: &str) -> Result<(), String> {
    let (Value::Object(object), true) = (value, schema.get("type").is_some()) else {
        return Ok(());
    };
    for (name, value) in object {
        let named = schema["properties"].get(name);
        let Some(schema) = named.or_else(|| schema.get("additionalProperties")) else {
            return Err(format!("{at}: the schema has no {name}"));
        };
        check(value, schema, root, &format!("{at}/{name}"))?;
    }
    Ok(())
}

fn is_of(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("there is no type {other}"),
    }
}

#[track_caller]
fn check_report(report: &RunReport) {
    let schema = schema();
    check(&serde_json::from_str(&report.to_json()).unwrap(), &schema, &schema, "").unwrap();
}

/// The report of a pipeline of which the second stage is named, and limited the run.
fn pipeline() -> RunReport {
    let part =
        |name: Option<&str>| StagePart { name: name.map(str::to_owned), report: eventful(2) };
    let mut report = stages::report(vec![part(None), part(Some("infer"))], Account::default());
    report.bottleneck_stage = Some(2);
    report
}

#[test]
fn every_report_fits_the_schema() {
    check_report(&RunReport::default());
    check_report(&PlayedRun::new(2).recorder.report());
    check_report(&PlayedRun::new(2).end(1_000));
    let eventful = eventful(3);
    check_report(&eventful);
    let mut full = eventful;
    full.error = Some("no disk".to_owned());
    full.fallbacks = vec!["cpu".to_owned()];
    full.provenance.settings.insert("window".to_owned(), "7".to_owned());
    full.provenance.retry = vec!["denoise".to_owned(), "--resume".to_owned()];
    full.spans[0].is_open = true;
    full.gpus = vec![GpuLoad { samples: vec![GpuSample::default()], ..GpuLoad::default() }];
    full.incidents[0].took = std::time::Duration::from_secs(1);
    check_report(&full);
    check_report(&pipeline());
}

#[test]
fn the_schema_refuses_what_is_no_report() {
    let schema = schema();
    let mut report: Value = serde_json::from_str(&eventful(1).to_json()).unwrap();
    let checked = |report: &Value| check(report, &schema, &schema, "");
    report["version"] = 2.into();
    assert!(checked(&report).unwrap_err().starts_with("/version"));
    report["version"] = 1.into();
    report["producers"][0]["busy"] = 1.5.into();
    assert!(checked(&report).unwrap_err().starts_with("/producers/0/busy"));
    report["producers"][0]["busy"] = 1.into();
    report["secret"] = 1.into();
    assert!(checked(&report).unwrap_err().contains("no secret"));
    report.as_object_mut().unwrap().remove("secret");
    report.as_object_mut().unwrap().remove("lasted");
    assert!(checked(&report).unwrap_err().contains("required"));
}

/// The names of enumerations come from the types, which match on all of their values.
#[test]
fn the_schema_names_every_value_of_an_enumeration() {
    use super::{Bottleneck, Ending, IncidentKind, RetryOutcome};
    let schema = schema();
    let names = |at: &str| schema.pointer(at).unwrap()["enum"].as_array().unwrap().clone();
    for name in names("/properties/bottleneck") {
        serde_json::from_value::<Bottleneck>(name).unwrap();
    }
    for name in names("/properties/ending") {
        serde_json::from_value::<Ending>(name).unwrap();
    }
    for name in names("/properties/incidents/items/properties/kind") {
        serde_json::from_value::<IncidentKind>(name).unwrap();
    }
    for name in names("/properties/retries/properties/list/items/properties/outcome") {
        serde_json::from_value::<RetryOutcome>(name).unwrap();
    }
    let unknown = serde_json::from_str::<Bottleneck>("\"?\"").unwrap_err().to_string();
    let listed = names("/properties/bottleneck");
    assert!(listed.iter().all(|name| unknown.contains(&format!("`{}`", name.as_str().unwrap()))));
    assert_eq!(unknown.matches('`').count(), 2 * (listed.len() + 1), "{unknown}");
}
