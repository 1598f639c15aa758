//! The names of results: what they may be, and what they never replace.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::Place;

/// Files of the user, none of which is a result.
fn place_with_files() -> Place {
    let place = Place::new();
    for directory in ["samples/s1", "samples/s2", "precious", "num/1", "num/3/stdout"] {
        fs::create_dir_all(place.path(directory)).unwrap();
    }
    for file in
        ["samples/s1/raw.dat", "samples/s2/raw.dat", "precious/x", "num/1/mine", "num/2", "a.txt"]
    {
        place.write(file, "mine");
    }
    place
}

#[track_caller]
fn check_files(place: &Place) {
    for file in
        ["samples/s1/raw.dat", "samples/s2/raw.dat", "precious/x", "num/1/mine", "num/2", "a.txt"]
    {
        assert_eq!(place.read(file), "mine", "{file}");
    }
    assert!(place.path("num/3/stdout").is_dir());
}

#[test]
fn only_results_are_replaced() {
    let place = place_with_files();
    for (line, failed, said) in [
        ("'{}/' -- touch ran ::: samples/s1 samples/s2", 2, "samples/s1, which holds raw.dat"),
        ("'{//}/' -- touch ran ::: samples/s1/raw.dat", 1, "samples/s1, which holds raw.dat"),
        ("'{1}/' -- touch ran ::: precious ::: b", 1, "precious, which holds x"),
        ("num -- touch ran ::: a b c", 3, "num/2, which is not the result of a job"),
        ("num/ -- touch ran ::: a", 1, "num/1, which holds mine"),
        ("'{}' -- touch ran ::: samples/s1/raw.dat", 1, "samples/s1/raw.dat, which is not"),
        ("'{.}.txt' -- touch ran ::: a.raw", 1, "a.txt, which is not the result of a job"),
        ("'{}' --warm -- true ::: a.txt", 1, "a.txt, which is not the result of a job"),
    ] {
        let ran = place.run_typed(&format!("--retries 2 --results {line}"));
        ran.check_said(failed, &["job 1 could not be started: its results", said]);
        assert!(!ran.stderr.contains("is retried"), "{ran:?}");
        check_files(&place);
    }
    assert!(!place.path("ran").exists(), "no job was started");
}

#[test]
fn a_table_of_the_user_is_not_replaced() {
    let place = Place::new();
    for (name, text) in
        [("t.csv", "name,size\na,1\n"), ("t.tsv", "a\tb\n"), ("t.jsonl", "{\"a\":1}\n")]
    {
        for more in ["", "--journal j --resume"] {
            place.write(name, text);
            let ran = place.run_typed(&format!("--results {name} {more} -- touch ran ::: a"));
            ran.check_said(106, &[name, "it exists and is no table of results"]);
            assert_eq!(place.read(name), text);
        }
    }
    assert!(!place.path("ran").exists());
    for name in ["o.csv", "o.tsv", "o.json"] {
        place.write(name, "");
        for input in ["a", "b"] {
            let ran = place.run_typed(&format!("--results {name} -- echo ::: {input}"));
            ran.check(0, &format!("{input}\n"));
        }
        let rows = place.read(name);
        assert!(rows.contains("echo b") && !rows.contains("echo a"), "{rows}");
    }
}

#[test]
fn results_of_an_interrupted_run_are_replaced() {
    let place = Place::new();
    fs::create_dir_all(place.path("out/1")).unwrap();
    fs::create_dir_all(place.path("out/2")).unwrap();
    place.write("out/2/stdout", "old");
    fs::create_dir_all(place.path("out/.job-abcdef")).unwrap();
    place.run_typed("--results out -- echo ::: a b").check(0, "a\nb\n");
    assert_eq!(
        (place.read("out/1/stdout"), place.read("out/2/stdout")),
        ("a\n".into(), "b\n".into())
    );
    for text in ["f/{}", "d/{}/"] {
        for said in ["old", "new"] {
            let ran =
                place.run_typed(&format!("-j1 --results '{text}' -- echo {said} {{}} ::: a b"));
            ran.check(0, &format!("{said} a\n{said} b\n"));
        }
    }
    assert_eq!((place.read("f/b"), place.read("d/b/stdout")), ("new b\n".into(), "new b\n".into()));
    fs::remove_file(place.path("f/a")).unwrap();
    place.run_typed("--results f/{} -- echo ::: a").check(0, "a\n");
}

#[test]
fn a_name_does_not_lead_out() {
    let place = place_with_files();
    fs::create_dir(place.path("out")).unwrap();
    symlink("../precious", place.path("out/link")).unwrap();
    symlink("../missing", place.path("out/broken")).unwrap();
    let before = place.names("");
    for (line, input) in [
        ("'out/{}/'", "../precious"),
        ("'out/{}.txt'", "../../escaped"),
        ("'out/{}/'", ".."),
        ("'out/{}/'", "."),
        ("'out/{}/'", "b/.."),
        ("'out/.{}/'", "."),
        ("'out/{}{}/'", "./"),
        ("'out/{}/'", "''"),
        ("'out/{}'", "link/new"),
        ("'out/{}/'", "link/new/deep"),
        ("'out/{}/'", "link"),
        ("'out/{}'", "broken/x"),
        ("'{}.txt'", &*place.path("absolute").display().to_string()),
        ("'{}'", "''"),
        ("'{//}/'", "b"),
        ("'out/{/}/x/{}'", ".."),
    ] {
        let ran = place.run_typed(&format!("-j1 --results {line} -- echo ::: {input} good"));
        assert_eq!(
            ran.code,
            Some(if line == "'{//}/'" { 2 } else { 1 }),
            "{line} {input}: {ran:?}"
        );
        assert!(ran.stderr.contains("job 1 could not be started: its results"), "{ran:?}");
        check_files(&place);
        assert_eq!(place.names("precious"), ["x"]);
        let stays = |name: &String| before.contains(name) || name.starts_with("good");
        assert!(place.names("").iter().all(stays), "{line} {input}: {:?}", place.names(""));
        for name in place.names("out").into_iter().filter(|name| name.contains("good")) {
            let path = place.path("out").join(name);
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
    }
    let ran = place.run_typed("-j1 --results 'fine/{}/' -- echo ::: ./a b//c ...");
    ran.check(0, "./a\nb//c\n...\n");
    assert_eq!(place.read("fine/b/c/stdout"), "b//c\n");
    let folder = place.path("").display().to_string();
    place
        .run_typed(&format!("--results '/{{}}.log' -- echo ::: {folder}e"))
        .check(0, &format!("{folder}e\n"));
    assert!(place.path("e.log").exists());
}

#[test]
fn a_name_that_cannot_be_used_fails_its_job_only() {
    let place = Place::new();
    let (long, wide) = ("x".repeat(256), "é".repeat(128));
    let nearly = "y".repeat(252);
    let deep = "d/".repeat(2_048);
    place.write("file", "mine");
    let inputs = format!("{long} {wide} {nearly} {deep} file/x good");
    let ran =
        place.run_typed(&format!("-j1 --retries 1 --results 'out/{{}}' -- true ::: {inputs}"));
    ran.check_said(
        4,
        &[
            "job 1 could",
            "job 2 could",
            "job 3 could",
            "job 4 could",
            "(260 bytes): File name too long",
        ],
    );
    assert_eq!(place.names("out"), ["file", "good", "good.err", "good.json"]);
    let ran = place.run_typed(&format!("-j1 --results '{{}}/' -- true ::: {inputs}"));
    ran.check_said(4, &["job 5 could not be started: its results cannot be kept in file"]);
    assert_eq!((place.read("file"), place.names("good").len()), ("mine".into(), 3));
    place.write("nul", b"a\0b\n");
    let ran = place.run_typed("-a nul --results 'nuls/{}' -- true x");
    ran.check_said(104, &["input 1 of nul has a NUL in it"]);
}

#[test]
fn two_jobs_do_not_share_a_place() {
    let place = Place::new();
    for (text, inputs, said) in [
        ("a/{}", "x x/y", "job 2 could not be started: its results"),
        ("b/{}", "x x.json", "b/x.json, would be among those of job 1"),
        ("c/{}", "x.err x", "c/x, would be among those of job 1"),
        ("d/{}/", "x x/y", "d/x/y, would be among those of job 1"),
        ("e/{}/", "x/y x", "e/x, which holds y"),
    ] {
        let ran = place.run_typed(&format!("-j1 --results '{text}' -- echo ::: {inputs} last"));
        ran.check_said(1, &[said]);
        assert!(ran.stdout.ends_with("last\n"), "{ran:?}");
    }
    for (text, inputs) in [("f/{/}", "a/x b/x"), ("g/{.}/", "x.a x.b"), ("h", "same same")] {
        let marked = if text == "h" { "h{1}" } else { text };
        let ran = place.run_typed(&format!("-j1 --results '{marked}' -- touch {{#}} ::: {inputs}"));
        ran.check_said(106, &["job 2 and an earlier job have the same name"]);
        assert!(!place.path("2").exists(), "job 2 was not started");
    }
}

/// Folders of the user that only root may write to.
#[test]
fn a_place_that_cannot_be_written_fails_its_job_before_it_starts() {
    for (text, inputs, ran, said) in [
        ("out/{}", "no/a b no/c", "b", "out/no/a: Permission denied"),
        ("out/{}/", "no/old b no/c", "b", "out/no/old: Permission denied"),
        ("no/{}.txt", "a b", "", "no/a.txt: Permission denied"),
        ("{//}/{/}.log", "no/a out/b", "out/b", "no/a.log: Permission denied"),
        ("out/{}/", "old b", "b", "out/old: Permission denied"),
    ] {
        let place = Place::new();
        let program = place.path("gangline");
        fs::copy(env!("CARGO_BIN_EXE_gangline"), &program).unwrap();
        for folder in ["no", "out/no/old", "out/old"] {
            fs::create_dir_all(place.path(folder)).unwrap();
        }
        let as_user = match rustix::process::geteuid().is_root() {
            true => "setpriv --reuid=61234 --clear-groups --inh-caps=-all",
            false => "",
        };
        let line = format!(
            "chmod -R a+rwX .; chmod a-w no out/no/old out/no out/old; exec {as_user} {} run -j1 --results '{text}' \
             --shell -- 'echo $1' ::: {inputs}",
            program.display()
        );
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &line]).current_dir(place.directory());
        let of = place.ran(command.env("TMPDIR", place.path("tmp")));
        let all = inputs.split(' ').count();
        let failed = all - ran.split_terminator(' ').count();
        of.check_said(
            failed.try_into().unwrap(),
            &["job 1 could not be started: its results", said],
        );
        assert_eq!(of.stdout.trim_end(), ran, "{text}: {of:?}");
        let restore = ["-R", "u+rwX", "."];
        let mut restored = std::process::Command::new("chmod");
        assert!(restored.args(restore).current_dir(place.directory()).status().unwrap().success());
    }
}

#[test]
fn what_a_job_writes_into_its_own_place_stays() {
    let place = Place::new();
    for (text, script) in [
        ("out/{}/", "mkdir -p out/a; echo mine > out/a/own"),
        ("out/{}", "mkdir -p out; echo mine > out/b"),
        ("out/{#}/", "mkdir -p out/1/stdout; echo mine > out/1/stdout/x"),
    ] {
        let input = if text == "out/{}" { "b" } else { "a" };
        let ran = place.run_typed(&format!("--results '{text}' --shell -- '{script}' ::: {input}"));
        ran.check_said(106, &["the results of job 1 cannot be written", "would replace out/"]);
    }
    for file in ["out/a/own", "out/b", "out/1/stdout/x"] {
        assert_eq!(place.read(file), "mine\n");
    }
}
