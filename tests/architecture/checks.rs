//! Checks of the checks.

use crate::sizes::{generic_over_runner, parameters, shared_names};
use crate::source::{Files, code};
use crate::violations;

fn found(files: &[(&str, &str)]) -> Vec<String> {
    let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    violations(&files.collect()).into_iter().collect()
}

#[test]
fn an_import_may_run_down_and_not_up() {
    let engine = ("engine::run", "use crate::base::Order;\n");
    assert_eq!(found(&[engine, ("base", "pub struct Order;\n")]), [""; 0]);
    let up = ["base imports engine::run, which is above it"];
    for text in [
        "use crate::engine::run::Run;\n",
        "use crate::engine::{\n    run::{Run, Shape},\n};\n",
        "fn f() -> u8 {\n    crate::engine::run::f()\n}\n",
    ] {
        assert_eq!(found(&[("engine::run", ""), ("base", text)]), up, "{text}");
    }
}

#[test]
fn crates_are_below_the_library() {
    let cfg = ("gangline_config", "mod tree;\npub struct CfgNode;\n");
    let tree = ("gangline_config::tree", "use crate::CfgNode;\n");
    let root = ("", "pub(crate) use gangline_config as cfg;\n");
    let base = ("base", "use crate::cfg::CfgNode;\n");
    assert_eq!(found(&[root, base, cfg, tree]), [""; 0]);
    let circle = ("gangline_config", "use self::tree::Tree;\npub struct CfgNode;\n");
    assert_eq!(
        found(&[root, base, circle, tree]),
        ["circle: gangline_config, gangline_config::tree"]
    );
}

#[test]
fn a_name_that_is_passed_on_comes_from_where_it_is_defined() {
    let files = [
        ("base", "pub use self::hook::Hook;\n"),
        ("base::hook", "pub enum Hook {}\n"),
        ("error", "pub use crate::base::Hook;\n"),
        ("device", "use crate::error::Hook;\n"),
    ];
    assert_eq!(found(&files), [""; 0]);
}

#[test]
fn comments_texts_and_tests_import_nothing() {
    let text = "// use crate::api::Pool;\nconst A: &str = \"\nuse crate::api::Pool;\n\";\n\
                const B: &str = r#\"\nuse crate::api::Pool;\n\"#;\nconst C: char = '\"';\n\
                #[cfg(test)]\nmod tests {\n    use crate::api::Pool;\n}\n";
    assert_eq!(found(&[("api", ""), ("base", text)]), [""; 0]);
    let files =
        [("api", ""), ("base", "#[cfg(test)]\nmod t;\n"), ("base::t", "use crate::api::A;\n")];
    assert_eq!(found(&files), [""; 0]);
    let behind = "#[cfg(test)]\nmod tests {}\nuse crate::api::Pool;\n";
    assert_eq!(found(&[("api", ""), ("base", behind)]).len(), 1);
}

#[test]
fn a_circle_is_found_however_long() {
    let files = [
        ("base::a", "use super::b::B;\n"),
        ("base::b", "use super::c::C;\n"),
        ("base::c", "use crate::base::a::A;\n"),
        ("base::d", "use super::a::A;\n"),
    ];
    assert_eq!(found(&files), ["circle: base::a, base::b, base::c"]);
    assert_eq!(found(&files[1..]), [""; 0]);
}

#[test]
fn lengths_are_counted() {
    let lines = |n: usize| "    x();\n".repeat(n);
    let function = |n| format!("pub(crate) fn long() {{\n{}}}\n", lines(n));
    assert_eq!(found(&[("base", &function(58))]), [""; 0]);
    assert_eq!(found(&[("base", &function(59))]), ["base: long has more than 60 lines"]);
    assert_eq!(found(&[("base", &lines(501))]), ["base has more than 500 lines"]);
}

#[test]
fn parameters_are_counted() {
    assert_eq!(parameters("fn f() {}"), 0);
    assert_eq!(parameters("fn f<A: Fn(u8, u8) -> u8, B>(a: A, b: Map<B, (u8, u8)>) {}"), 2);
    assert_eq!(parameters("fn f(\n    &self,\n    f: impl Fn(u8, u8) -> u8,\n) {}"), 2);
    let seven = "fn f(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8) {}\n";
    assert_eq!(found(&[("base", seven)]), ["base: f has more than 6 parameters"]);
}

#[test]
fn methods_and_fields_are_counted() {
    let methods =
        |n: usize| "    pub(super) fn f<T>(&self) {\n        fn g() {}\n    }\n".repeat(n);
    let block = |n| format!("impl<T> Part<T> {{\n{}}}\n", methods(n));
    let trait_block = |n| format!("impl<T> Of<u8> for Part<T> {{\n{}}}\n", methods(n));
    assert_eq!(found(&[("base", &(block(40) + &trait_block(9)))]), [""; 0]);
    let both = [("base::a", &*block(20)), ("base::b", &*block(21))];
    assert_eq!(found(&both), ["base: Part has 41 methods"]);
    let fields = |first: &str, n: usize| {
        let rest = "    #[a(b: c)]\n    pub a: Map<\n        B: C,\n    >,\n".repeat(n - 1);
        format!("pub struct Part<T>\nwhere\n    T: Of,\n{{\n    {first}a: u8,\n{rest}}}\n")
    };
    assert_eq!(found(&[("base", &fields("", 15))]), [""; 0]);
    assert_eq!(found(&[("base", &fields("", 16))]), ["base: Part has 16 fields"]);
    assert_eq!(found(&[("base", &fields("pub(crate) ", 16))]).len(), 1);
    assert_eq!(found(&[("base", &fields("pub ", 16))]), [""; 0], "plain data");
}

#[test]
fn type_parameters_are_found_that_are_runners() {
    let files = [
        ("engine::a", "struct A<R: Runner>(R);\n"),
        ("engine::b", "fn b<R>()\nwhere\n    R: Runner<Input = u8> + 'static,\n{\n}\n"),
        ("engine::c", "impl Runner for C {}\nfn c(r: RunnerName) {}\n// R: Runner\n"),
        ("api::d", "struct D<R: Runner>(R);\n"),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(generic_over_runner(&code(&Files::from(files))), ["engine::a", "engine::b"]);
}

#[test]
fn names_are_counted_by_file() {
    let files = [("base::a", "struct A;\nenum B {}\n"), ("run", "    pub trait A {}\n")];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(shared_names(&Files::from(files)), ["A: base::a, run"]);
}

#[test]
fn impl_blocks_are_counted_by_file() {
    let block = "impl<T: Into<u8>> Run<T> {}\nimpl Clone for Run<u8> {}\n";
    let files = [("engine::a", block), ("engine::b", block), ("engine::c", block)];
    assert_eq!(found(&files), ["engine: Run has impl blocks in 3 files"]);
    assert_eq!(found(&files[1..]), [""; 0]);
    let builders = block.replace("Run<T>", "Builder<T>");
    let files = ["engine::a", "engine::b", "engine::c"].map(|file| (file, builders.as_str()));
    assert_eq!(found(&files), [""; 0]);
}
