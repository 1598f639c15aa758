//! `gangline run --nats` on workers of `gangline worker --serve commands`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;

use crate::broker::Broker;
use crate::shell_cluster::{ShellCluster, host};
use crate::suite::tests;
use crate::support::{Place, wait_until};

tests![
    outputs_are_in_the_order_of_the_inputs,
    marks_are_filled_where_the_job_runs,
    gpus_are_those_of_the_slot_there,
    a_mark_for_gpus_needs_a_slot_with_gpus,
    failures_count_as_on_one_machine,
    a_failed_job_is_retried,
    records_and_results_are_written_here,
    a_journal_is_continued,
    large_outputs_come_back,
    a_job_runs_in_the_folder_of_the_run,
    files_travel_with_a_job,
    a_file_that_is_not_there_fails_its_job,
    a_pipe_is_no_file_that_travels,
    a_fetched_file_that_cannot_be_written_fails_its_job,
    names_and_folders_have_any_bytes,
    named_variables_come_along,
    no_job_finds_the_address_of_the_broker,
    a_report_has_a_row_for_each_worker,
    a_row_counts_jobs_and_failed_attempts,
    options_for_this_machine_are_refused_by_name,
    a_password_is_in_no_message_and_no_option,
    the_example_prints_what_the_page_says,
];

fn outputs_are_in_the_order_of_the_inputs() {
    let cluster = ShellCluster::start(&["cpu*2", "cpu"]);
    let inputs: Vec<String> = (0..30).map(|n| n.to_string()).collect();
    // Later jobs end first.
    let line =
        format!("-- sh -c 'sleep 0.0$((9 - $1 % 10)); echo $1' sh {{}} ::: {}", inputs.join(" "));
    cluster.run(&line).check(0, &(inputs.join("\n") + "\n"));
    let ran = cluster.run("--no-keep-order -- sh -c 'echo $WORKER' sh {} ::: 1 2 3 4 5 6");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    cluster.end();
}

fn marks_are_filled_where_the_job_runs() {
    let cluster = ShellCluster::start(&["cpu*2"]);
    let log = cluster.place.path("log");
    let line = format!(
        "--tagstring {{host}}/{{#}} --joblog {} -- echo {{}} {{host}} {{worker}} ::: a b",
        log.display()
    );
    let ran = cluster.run(&line);
    let host = host();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for (line, (number, input)) in ran.stdout.lines().zip([(1, "a"), (2, "b")]) {
        let beginning = format!("{host}/{number}\t{input} {host} ");
        assert!(line.starts_with(&beginning), "{line}");
    }
    for line in cluster.log("log") {
        assert_eq!(line[1], host, "{line:?}");
        assert!(line[8].starts_with("echo ") && line[8].contains(&host), "{line:?}");
        assert!(["0", "1"].contains(&&*line[9]), "a slot of the worker: {line:?}");
    }
    // Here, it is this machine.
    cluster
        .place
        .run_typed("-- echo {host} ::: a")
        .check(0, &format!("{host} a\n").replace(" a", ""));
    cluster.end();
}

fn gpus_are_those_of_the_slot_there() {
    let cluster = ShellCluster::start(&["cuda:1+cuda:3"]);
    let script = "printenv CUDA_VISIBLE_DEVICES || echo none; echo $1";
    let ran = cluster.run(&format!("--joblog log -- sh -c '{script}' sh {{}} ::: a"));
    ran.check(0, "1,3\na\n");
    assert_eq!(cluster.log("log")[0][10], "1,3");
    cluster.run(&format!("-- sh -c '{script}' sh '{{gpu}} ' ::: a")).check(0, "none\n1 3\n");
    cluster
        .run(&format!("--visible -- sh -c '{script}' sh '{{gpu}} ' ::: a"))
        .check(0, "1,3\n0 1\n");
    cluster.end();
}

fn a_mark_for_gpus_needs_a_slot_with_gpus() {
    let cluster = ShellCluster::start(&["cpu"]);
    let ran = cluster.run("-- echo {gpu} ::: a");
    ran.check_said(
        1,
        &["job 1 could not be started: it has a mark for GPUs, and this slot has none"],
    );
    cluster.run("--shell 'echo \"<$CUDA_VISIBLE_DEVICES>\"' ::: a").check(0, "<>\n");
    cluster.end();
}

fn failures_count_as_on_one_machine() {
    let cluster = ShellCluster::start(&["cpu*2"]);
    let ran =
        cluster.run("--joblog log -- sh -c 'echo out; echo err >&2; exit $1' sh {} ::: 0 3 0 7");
    assert_eq!((ran.code, &*ran.stdout), (Some(2), "out\nout\nout\nout\n"), "{ran:?}");
    ran.check_said(2, &["err\n", "job 2 exited with 3", "job 4 exited with 7"]);
    let mut log: Vec<_> =
        cluster.log("log").iter().map(|it| (it[0].clone(), it[6].clone())).collect();
    log.sort();
    let statuses: Vec<&str> = log.iter().map(|it| &*it.1).collect();
    assert_eq!(statuses, ["0", "3", "0", "7"]);
    let ran = cluster.run("-- sh -c 'kill -9 $$' sh {} ::: 1");
    ran.check_said(1, &["job 1 was killed by SIGKILL"]);
    let ran = cluster.run("-- no-such-program-here {} ::: 1 2");
    ran.check_said(2, &["job 1 could not be started: ", "job 2 could not be started: "]);
    cluster.end();
}

fn a_failed_job_is_retried() {
    let cluster = ShellCluster::start(&["cpu"]);
    let line =
        "--retries 2 -- sh -c 'mkdir d$1 2>/dev/null && exit 1; echo $1 {attempt}' sh {} ::: a b";
    let ran = cluster.run(line);
    ran.check(0, "a 2\nb 2\n");
    ran.check_said(0, &["job 1 exited with 1 at attempt 1, and is retried"]);
    cluster.end();
}

fn records_and_results_are_written_here() {
    let cluster = ShellCluster::start(&["cpu*2"]);
    let ran = cluster.run("--records --results out -- echo {} ::: a b");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let records =
        ran.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    for (record, output) in records.zip(["a\n", "b\n"]) {
        assert_eq!((&record["host"], &record["output"]), (&host().into(), &output.into()));
    }
    assert_eq!(cluster.place.names("out").len(), 2, "{:?}", cluster.place.names("out"));
    let refused = cluster.run("--results out/{host}/{} -- echo {} ::: a");
    refused.check_said(102, &["--results cannot have", "{host}"]);
    cluster.end();
}

fn a_journal_is_continued() {
    let cluster = ShellCluster::start(&["cpu"]);
    let line =
        "--journal journal -- sh -c '[ $1 != b ] || [ -e go ] || exit 1; echo $1' sh {} ::: a b c";
    let ran = cluster.run(line);
    assert_eq!((ran.code, &*ran.stdout), (Some(1), "a\nc\n"), "{ran:?}");
    cluster.place.write("go", "");
    cluster.run(&format!("--resume {line}")).check(0, "b\n");
    cluster.end();
}

fn large_outputs_come_back() {
    let cluster = ShellCluster::start(&["cpu"]);
    let ran = cluster.run("-- sh -c 'head -c 3000000 /dev/zero | tr \"\\0\" x' sh {} ::: a");
    assert_eq!((ran.code, ran.stdout.len()), (Some(0), 3_000_000));
    assert!(ran.stdout.bytes().all(|byte| byte == b'x'));
    let ran = cluster.run("--max-output 1k -- sh -c 'head -c 3000000 /dev/zero' sh {} ::: a");
    ran.check_said(1, &["it printed more than 1024 bytes"]);
    let ran = cluster.run("-- head -c 70000000 {} ::: /dev/zero");
    ran.check_said(1, &["it printed more than 67108864 bytes"]);
    cluster.end();
}

fn a_job_runs_in_the_folder_of_the_run() {
    let cluster = ShellCluster::start(&["cpu"]);
    let here = cluster.place.directory().canonicalize().unwrap();
    let here = here.display();
    cluster.run("-- pwd ::: a").check(0, &format!("{here}\n"));
    cluster.run("--workdir work/{#} -- pwd ::: a").check(0, &format!("{here}/work/1\n"));
    let folder = cluster.place.path("moved");
    std::fs::create_dir(&folder).unwrap();
    // The second job has no folder.
    let mut command = cluster.command("-j 1 -- sh -c 'cd .. && rmdir moved' ::: a b");
    let ran = cluster.place.ran(command.current_dir(folder));
    ran.check_said(1, &["job 2 could not be started: its directory ", "is not on this machine"]);
    cluster.end();
}

fn files_travel_with_a_job() {
    let cluster = ShellCluster::start(&["cpu*2"]);
    std::fs::create_dir(cluster.place.path("in")).unwrap();
    for name in ["a", "b"] {
        cluster.place.write(&format!("in/{name}.txt"), format!("text of {name}\n"));
    }
    let tool = cluster.place.write("tool", "#!/bin/sh\ntr a-z A-Z\n");
    std::fs::set_permissions(tool, PermissionsExt::from_mode(0o755)).unwrap();
    // A folder of the job alone has what was sent, and is removed.
    let script = "ls; ls in; mkdir out; ./tool < $1 > out/{/.}.up; pwd >&2";
    let line = format!(
        "--send {{}} --send tool --fetch out/{{/.}}.up -- sh -c '{script}' sh {{}} ::: in/a.txt in/b.txt"
    );
    let ran = cluster.run(&line);
    ran.check(0, "in\ntool\na.txt\nin\ntool\nb.txt\n");
    for name in ["a", "b"] {
        let upper = format!("TEXT OF {}\n", name.to_uppercase());
        assert_eq!(cluster.place.read(&format!("out/{name}.up")), upper);
    }
    for folder in ran.stderr.lines() {
        assert!(!std::path::Path::new(folder).exists(), "{folder}");
    }
    // With a folder of the run, they stay there.
    let ran = cluster.run("--workdir stays --send in/{} -- cat in/{} ::: a.txt");
    ran.check(0, "text of a\n");
    assert_eq!(cluster.place.read("stays/in/a.txt"), "text of a\n");
    cluster.end();
}

fn a_file_that_is_not_there_fails_its_job() {
    let cluster = ShellCluster::start(&["cpu"]);
    let ran = cluster.run("--send {} -- echo ran ::: missing");
    ran.check_said(1, &["job 1 could not be started: the file missing cannot be read"]);
    let ran = cluster.run("--fetch {} -- echo ran ::: missing");
    ran.check_said(1, &["job 1 failed: the file missing cannot be read"]);
    // A job that has failed by itself keeps its status, and what it has left comes back.
    let ran = cluster.run("--fetch {} --fetch other -- sh -c 'echo x > left; exit 3' ::: left");
    ran.check_said(1, &["job 1 exited with 3"]);
    assert_eq!(cluster.place.read("left"), "x\n");
    let ran = cluster.run("--send {} -- true ::: ../other /etc/passwd");
    ran.check_said(2, &["the file ../other is not below the folder of the run"]);
    let ran = cluster.run("--send {host} -- true ::: a");
    ran.check_said(102, &["--send cannot have"]);
    cluster.end();
}

fn named_variables_come_along() {
    let cluster = ShellCluster::start(&["cpu"]);
    let line =
        "--env GIVEN --env MISSING --shell 'echo $GIVEN ${MISSING-none} ${OTHER-none}' ::: a";
    let mut command = cluster.command(line);
    let ran = cluster.place.ran(command.env("GIVEN", "given text").env("OTHER", "x"));
    ran.check(0, "given text none none\n");
    let ran = cluster.place.run_typed("--env GIVEN -- true ::: a");
    ran.check_said(102, &["--nats"]);
    cluster.end();
}

fn no_job_finds_the_address_of_the_broker() {
    let cluster = ShellCluster::start(&["cpu"]);
    let ran = cluster.run("-- sh -c 'env | grep -e GANGLINE -e nats: || echo none' ::: a");
    ran.check(0, "none\n");
    cluster.end();
}

fn a_report_has_a_row_for_each_worker() {
    let cluster = ShellCluster::start(&["cpu*2"]);
    let ran = cluster
        .run("--report report.json --report report.txt -- sh -c 'sleep 0.1' sh {} ::: 1 2 3 4");
    ran.check(0, "");
    let report: serde_json::Value =
        serde_json::from_str(&cluster.place.read("report.json")).unwrap();
    let rows = report["producers"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["place"], format!("{}/0", host()));
    assert_eq!(rows[0]["items"], 4);
    let text = cluster.place.read("report.txt");
    assert!(text.contains(&host()), "{text}");
    cluster.end();
}

fn a_row_counts_jobs_and_failed_attempts() {
    let cluster = ShellCluster::start(&["cpu*2", "cpu"]);
    let line = "--retries 1 --report report.json --report report.txt -- sh -c 'exit $1' sh {} ::: 0 0 0 0 1 1 1";
    assert_eq!(cluster.run(line).code, Some(3));
    let report: serde_json::Value =
        serde_json::from_str(&cluster.place.read("report.json")).unwrap();
    let sum = |name: &str| {
        let rows = report["producers"].as_array().unwrap();
        rows.iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((sum("items"), sum("failed")), (7, 6), "{report:#}");
    let text = cluster.place.read("report.txt");
    assert!(!text.contains("slots"), "{text}");
    cluster.end();
}

fn a_pipe_is_no_file_that_travels() {
    let cluster = ShellCluster::start(&["cpu"]);
    let ran = cluster.run("--fetch {} -- mkfifo {} ::: pipe");
    ran.check_said(1, &["the file pipe cannot be read: it is not a regular file"]);
    let pipe = cluster.place.path("pipe");
    assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    let ran = cluster.run("--send {} -- cat {} ::: pipe");
    ran.check_said(1, &["the file pipe cannot be read: it is not a regular file"]);
    cluster.run("-- echo {} ::: free").check(0, "free\n");
    cluster.end();
}

fn a_fetched_file_that_cannot_be_written_fails_its_job() {
    let cluster = ShellCluster::start(&["cpu"]);
    std::fs::create_dir_all(cluster.place.path("b")).unwrap();
    let ran = cluster.run("--fetch {} -- sh -c 'echo $1 > $1; echo $1' sh {} ::: a b c");
    ran.check_said(1, &["job 2 failed: the file b cannot be written"]);
    assert_eq!((&*cluster.place.read("a"), &*cluster.place.read("c")), ("a\n", "c\n"));
    cluster.end();
}

fn names_and_folders_have_any_bytes() {
    let cluster = ShellCluster::start(&["cpu"]);
    let folder = cluster.place.path("x").with_file_name(OsStr::from_bytes(b"w\xffd"));
    std::fs::create_dir(&folder).unwrap();
    let name = OsStr::from_bytes(b"b\xffad");
    std::fs::write(folder.join(name), "content\n").unwrap();
    let mut command =
        cluster.command("--send {} --fetch {}.out -- sh -c 'cp \"$1\" \"$1.out\"' sh {} :::");
    command.arg(name).current_dir(&folder);
    cluster.place.start(&mut command).ran().check(0, "");
    let fetched = folder.join(OsStr::from_bytes(b"b\xffad.out"));
    assert_eq!(std::fs::read_to_string(fetched).unwrap(), "content\n");
    cluster.end();
}

fn options_for_this_machine_are_refused_by_name() {
    let place = Place::new();
    for option in [
        "--devices cpu",
        "--gpu-list 0",
        "--per-gpu 2",
        "--lock-gpus",
        "--load 8",
        "--memfree 1G",
        "--nice 5",
        "--line-buffer",
        "--ungroup",
        "--verbose",
        "--dry-run",
        "--bar",
        "--warm",
    ] {
        let name = option.split(' ').next().unwrap();
        let ran = place.run_typed(&format!("--nats nats://127.0.0.1:1 {option} -- echo ::: a"));
        ran.check_said(102, &["--nats", name]);
    }
    let ran = place.run_typed("--nats nats://127.0.0.1:1 -j 50% -- echo ::: a");
    ran.check_said(102, &["with --nats, -j takes a number"]);
}

fn a_password_is_in_no_message_and_no_option() {
    let place = Place::new();
    let broker = Broker::with_options(&["--user", "alice", "--pass", "secret"]);
    let url = broker.url().replace("nats://", "nats://alice:secret@");
    let mut command = place.gangline(["worker", "--nats", &url, "--serve", "commands"]);
    let worker = place.start(command.args(["--devices", "cpu"]));
    let run = Place::new();
    let script = "touch begun; until [ -e go ]; do sleep 0.01; done; echo done";
    let mut command = run.gangline(["run", "--nats", &url, "--shell", script, ":::", "a"]);
    let running = run.start(&mut command);
    run.wait_for("begun");
    for pid in run.living() {
        let path = format!("/proc/{}/cmdline", pid.as_raw_pid());
        let options = std::fs::read_to_string(path).unwrap();
        assert!(!options.contains("secret"), "{options}");
    }
    run.write("go", "");
    running.ran().check(0, "done\n");
    let wrong = url.replace("secret", "guessed");
    let ran = run.ran(&mut run.gangline(["run", "--nats", &wrong, "--", "true", ":::", "a"]));
    ran.check_said(104, &["authorization violation"]);
    assert!(!ran.stderr.contains("guessed"), "{ran:?}");
    // The file of options has the address.
    run.write("options.yaml", format!("nats: {url}\n"));
    run.run_typed("--config options.yaml -- echo {} ::: a").check(0, "a\n");
    worker.send(Signal::TERM);
    wait_until("the worker has ended", || place.living().is_empty());
}

fn the_example_prints_what_the_page_says() {
    let page = include_str!("../../../../docs/command-line.md");
    let blocks = page.split("\n```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.into_iter().find(|block| block.contains("--nats")).unwrap();
    let cluster = ShellCluster::start(&["cpu*2"]);
    let bin = cluster.place.path("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_gangline"), bin.join("gangline")).unwrap();
    let block = block.replace("nats://127.0.0.1:4222", &cluster.broker.url());
    for part in block.strip_prefix("$ ").unwrap().split("\n$ ") {
        let (typed, printed) = part.split_once('\n').unwrap();
        let mut command = Command::new("bash");
        command.args(["-c", &format!("PATH=$PWD/bin:$PATH\n{typed}")]);
        command.current_dir(cluster.place.directory()).env("LC_ALL", "C");
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), printed.trim_end());
    }
    cluster.end();
}
