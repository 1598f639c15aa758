//! Commands over inputs.

use crate::support::Place;

#[test]
fn outputs_come_in_the_order_of_the_inputs() {
    let ran = Place::new().run([
        "-j2",
        "--",
        "sh",
        "-c",
        "sleep $1; echo $1",
        "sh",
        "{}",
        ":::",
        "0.2",
        "0",
    ]);
    ran.check(0, "0.2\n0\n");
}

#[test]
fn an_input_is_only_ever_an_argument() {
    let ran =
        Place::new().run(["--", "printf", "<%s>", "{}", ":::", "$(rm -rf x)", "a b\"c", "-n"]);
    ran.check(0, "<$(rm -rf x)><a b\"c><-n>");
}

#[test]
fn the_number_of_failed_jobs_is_the_status() {
    let ran =
        Place::new().run(["--", "sh", "-c", "exit $1", "sh", "{}", ":::", "0", "3", "0", "1"]);
    ran.check(2, "");
}
