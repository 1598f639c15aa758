//! The number of threads of warm workers.

use std::process::Command;

use crate::support::Place;

const WORKER: &str = r#"
read -r hello
hello=${hello#*\"threads\":} hello=${hello%%,*}
echo "$hello $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS $MKL_NUM_THREADS $RAYON_NUM_THREADS" > threads.$1
echo '{"gangline":1}'
while read -r line; do
    item=${line#*\"item\":}; item=${item%%,*}
    echo "{\"item\":$item,\"output\":$item}"
done
"#;

/// Checks the number of threads in the first message of worker 0, and its variables.
#[track_caller]
fn check(line: &str, change: impl FnOnce(&mut Command), expected: &str) {
    let place = Place::new();
    place.write("worker", WORKER);
    let mut command = place.typed(line);
    for library in ["OMP", "OPENBLAS", "MKL", "RAYON"] {
        command.env_remove(format!("{library}_NUM_THREADS"));
    }
    change(&mut command);
    place.ran(&mut command).check(0, "1\n");
    assert_eq!(place.read("threads.0").trim(), expected, "{line}");
}

/// A run with one input, and the number of slots in `options`. Worker 0 is started in any case.
fn run(options: &str) -> String {
    format!("run --warm --preload {options} -- sh worker {{worker}} ::: a")
}

#[test]
fn cores_are_divided_among_the_slots() {
    let cores = std::thread::available_parallelism().unwrap().get();
    for (options, slots) in [("-j1", 1), ("-j100%", cores), ("--devices 'cpu*1'", 1)] {
        let share = (cores / slots).max(1);
        check(&run(options), |_| {}, &[share; 5].map(|share| share.to_string()).join(" "));
    }
    let place = Place::new();
    let file = place.write("jobs", "1");
    let options = format!("-j {}", file.display());
    // Any of its slots may get the input.
    place.write("worker", WORKER.replace("threads.$1", "threads"));
    let line = run(&options).replace(" ::: a", " ::: a b");
    let ran = place.ran(place.typed(&line).env_remove("OMP_NUM_THREADS"));
    ran.check(0, "1\n2\n");
    assert!(place.read("threads").starts_with(&format!("{cores} {cores}")));
}

#[test]
fn more_slots_than_cores_have_one_thread_each() {
    check(&run("-j 1000%"), |_| {}, "1 1 1 1 1");
}

#[test]
fn what_the_user_has_set_stays() {
    let one = run("-j100%");
    let set = |name: &'static str, value: &'static str| {
        move |command: &mut Command| _ = command.env(name, value)
    };
    check(&one, set("MKL_NUM_THREADS", "7"), "1 1 1 7 1");
    check(&one, set("RAYON_NUM_THREADS", "7"), "1 1 1 1 7");
    check(&one, set("OPENBLAS_NUM_THREADS", "7"), "1 1 7 1 1");
    check(&one, set("OMP_NUM_THREADS", "7"), "7 7 7 7 7");
    check(&one.replace("-- sh", "-- OMP_NUM_THREADS=5 sh"), |_| {}, "5 5 5 5 5");
    check(&run("-j1 --threads 9"), set("OMP_NUM_THREADS", "7"), "9 9 9 9 9");
}

#[test]
fn commands_that_are_not_workers_keep_their_environment() {
    let place = Place::new();
    let mut command = place.typed("run -j1 --shell -- 'echo ${OMP_NUM_THREADS-none}' ::: a");
    place.ran(command.env_remove("OMP_NUM_THREADS")).check(0, "none\n");
}
