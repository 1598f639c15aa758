//! Habits of GNU parallel, xargs and the shell: refused with the way to get the same, or the same.

use crate::support::Place;

/// Checks that a command line is refused before any job starts, and what is said.
#[track_caller]
fn refused(line: &str, parts: &[&str]) -> String {
    let place = Place::new();
    let ran = place.run_typed(line);
    ran.check(102, "");
    ran.check_said(102, parts);
    assert!(!place.path("started").exists(), "something was started");
    ran.stderr
}

#[test]
fn an_option_of_parallel_that_is_missing_names_the_way() {
    for (option, way) in [
        ("--pipe", "split it into files"),
        ("--block 10M", "split it into files"),
        ("-S host", "use --nats, --send and --fetch"),
        ("--sshlogin=host", "use --nats"),
        ("--semaphore", "flock(1)"),
        ("-L 2", "write -n N"),
        ("-i", "write -I TEXT"),
        ("--rpl x", "--shell"),
        ("--tmux", "no terminal"),
    ] {
        let stderr = refused(
            &format!("{option} -- touch started ::: x"),
            &["GNU parallel or xargs has", way],
        );
        assert!(!stderr.contains("similar"), "{option}: {stderr}");
    }
}

#[test]
fn a_run_cannot_be_resumed_by_its_log_alone() {
    let way = "--joblog FILE --retry-failed runs the failed jobs";
    refused("--resume --joblog log -- touch started ::: x", &["--journal <FILE>", way]);
    refused("--resume-failed --joblog log -- touch started ::: x", &["--journal <FILE>", way]);
}

#[test]
fn a_number_with_a_sign_is_no_word_of_the_command() {
    for option in ["-n -1", "--retries -2", "--per-gpu -1"] {
        let stderr = refused(&format!("{option} -- touch started ::: x"), &["takes a number"]);
        assert!(!stderr.contains("use '--"), "{stderr}");
    }
}

#[test]
fn options_that_change_nothing_here_are_accepted() {
    Place::new().run_typed("-q -- echo '$HOME' ::: a").check(0, "$HOME a\n");
    refused("-q --shell 'touch started' ::: a", &["cannot be used with"]);
}

#[test]
fn names_with_a_meaning_for_parallel_make_no_files() {
    let place = Place::new();
    for (options, said) in [
        ("--wd ...", "--workdir tmp/{#}"),
        ("--joblog -", "/dev/stderr"),
        ("--journal -", "/dev/stderr"),
    ] {
        let ran = place.run_typed(&format!("{options} -- touch started ::: x"));
        ran.check_said(102, &[said]);
    }
    assert_eq!(place.names("."), ["tmp"]);
}

#[test]
fn other_names_of_options_are_known() {
    let place = Place::new();
    let line = "--lb --jl log --res out --max-procs 1 --arg-file list --max-replace-args 1 -- echo";
    place.write("list", "a\n");
    place.run_typed(line).check(0, "a\n");
    assert!(place.path("log").exists() && place.path("out/1").exists());
    place
        .run_typed("--dryrun --keeporder --jobs 2 --xapply -- echo ::: a ::: b")
        .check(0, "echo a b\n");
}

#[test]
fn inputs_without_a_command_are_no_commands() {
    refused("::: 'touch started'", &["there is no command to run", "sh -c"]);
    Place::new().run_typed("-- sh -c ::: 'echo a | tr a b' 'echo c'").check(0, "b\nc\n");
}

#[test]
fn a_suggestion_is_alike() {
    for option in ["--lock-dri", "--colour", "--niceness"] {
        let stderr = refused(&format!("{option} -- touch started ::: x"), &["unexpected argument"]);
        assert!(!stderr.contains("similar"), "{option}: {stderr}");
    }
    for (option, meant) in [
        ("--retrys", "--retries"),
        ("--termesq", "--termseq"),
        ("--lod", "--load"),
        ("--cvs", "--csv"),
        ("--retry", "--retries"),
        ("--gpulist", "--gpu-list"),
        ("--jornal", "--journal"),
    ] {
        let alike = format!("a similar argument exists: '{meant}'");
        refused(&format!("{option} 2 -- touch started ::: x"), &[&alike]);
    }
}

#[test]
fn a_key_of_a_file_has_a_suggestion_too() {
    let place = Place::new();
    for (key, meant) in [("retry", "retries"), ("gpu-lst", "gpu_list"), ("cvs", "csv")] {
        place.write("c.yaml", format!("{key}: 2\n"));
        let ran = place.run_typed("--config c.yaml -- touch ::: started");
        let said = [format!("there is no option {key:?}"), format!("; {meant} is similar")];
        ran.check_said(102, &[&said[0], &said[1]]);
    }
    place.write("c.yaml", "colour: 2\n");
    let ran = place.run_typed("--config c.yaml -- touch ::: started");
    ran.check_said(102, &["there is no option \"colour\""]);
    assert!(!ran.stderr.contains("similar"), "{ran:?}");
}

#[test]
fn a_switch_with_a_number_is_explained() {
    for (switch, said) in [
        ("--slots 2", "--slots takes no number, and divides the GPUs of a list: -j 2 runs 2 jobs"),
        ("--share 3", "--share takes no number, and divides the GPUs of a list: -j 3 runs 3 jobs"),
        ("-k --slots 16", "-j 16 runs 16 jobs"),
    ] {
        refused(&format!("{switch} -- touch started ::: x"), &[said, "--gpu-list"]);
    }
    let stderr = refused("--slots -- touch started ::: x", &["--gpu-list"]);
    assert!(!stderr.contains("takes no number"), "{stderr}");
}

#[test]
fn an_option_counts_once() {
    for option in [
        "--csv list",
        "--tsv list",
        "--job-file list",
        "-j 2",
        "--retries 1",
        "-k",
        "--timeout 3",
        "--tag",
        "--delay 1",
        "--workdir here",
        "--halt 1",
    ] {
        let stderr = refused(
            &format!("{option} {option} -- touch started ::: x"),
            &["cannot be used multiple times"],
        );
        assert!(stderr.contains(option.split(' ').next().unwrap()) || option.len() < 5, "{stderr}");
    }
    refused("-k --no-keep-order -- touch started ::: x", &["cannot be used with"]);
}

#[test]
fn numbers_of_jobs_are_those_of_parallel() {
    let place = Place::new();
    let cores = place.ran(&mut place.typed("devices --json")).stdout;
    let cores: serde_json::Value = serde_json::from_str(&cores).unwrap();
    let cores = cores["cpu"]["usable"].as_u64().unwrap();
    let typed = [
        ("+2", cores + 2),
        ("-1", (cores - 1).max(1)),
        ("200%", 2 * cores),
        ("-999", 1),
        ("0", 20),
    ];
    for (workers, slots) in typed {
        // A dry run assigns the slots in turn.
        let inputs = (0..slots.max(20)).map(|_| "x ").collect::<String>();
        let line = format!("--dry-run -j {workers} -- echo {{%}} ::: {inputs}");
        let ran = place.run_typed(&line);
        let most = ran.stdout.lines().filter_map(|line| line[5..].parse::<u64>().ok()).max();
        assert_eq!((ran.code, most), (Some(0), Some(slots)), "{workers}");
    }
}

#[test]
fn a_command_of_the_shell_needs_a_shell() {
    refused("'touch started' ::: x", &["there is no program 'touch started'", "--shell"]);
    refused("'touch {} | cat' ::: started", &["--shell"]);
    for word in ["for", "export", "source", "cd", "if"] {
        refused(&format!("{word} started ::: x"), &["--shell"]);
    }
    let place = Place::new();
    let mut command = place.typed("run my_function ::: a");
    let ran = place.ran(command.env("BASH_FUNC_my_function%%", "() { echo hi; }"));
    ran.check_said(102, &["a function of bash", "bash -c 'my_function \"$@\"' bash {}"]);
}

#[test]
fn a_program_may_be_called_like_a_word_of_the_shell() {
    let place = Place::new();
    let name = "my program";
    std::os::unix::fs::symlink("/bin/echo", place.path(name)).unwrap();
    place.run_typed("'./my program' ::: a").check(0, "a\n");
}

#[test]
fn a_word_for_a_shell_is_refused() {
    for (line, word) in [
        ("touch started '|' wc ::: a", "'|' is for a shell"),
        ("touch started '>' out ::: a", "'>' is for a shell"),
        ("touch started '>{}.out' ::: a", "'>{}.out' is for a shell"),
        ("touch started '&&' ls ::: a", "'&&' is for a shell"),
        ("touch 'started;' echo {} ::: a", "'started;' is for a shell"),
        ("touch started '2>&1' ::: a", "'2>&1' is for a shell"),
        ("touch started \"'\\''\\$x'\\''\" ::: a", "is for a shell"),
    ] {
        refused(line, &[word, "--shell", "with -q"]);
    }
    for (line, stdout) in [
        ("-q -- echo {} '|' wc '>x' 'a;' b ::: a", "a | wc >x a; b\n"),
        ("-- find . -maxdepth 0 -name {} -exec ls ';' ::: a", ""),
        ("-- echo 'a|b' '<div' 'x;' ::: a", "a|b <div x; a\n"),
        ("--shell 'echo $1 | cat' ::: a", "a\n"),
    ] {
        let ran = Place::new().run_typed(line);
        ran.check(0, stdout);
        assert_eq!(ran.stderr, "", "{line}");
    }
}

#[test]
fn a_variable_that_no_shell_replaces_is_doubted() {
    for word in ["$HOME", "$HOME/a", "$(date)", "`date`", "\"a b\""] {
        let ran = Place::new().run_typed(&format!("-- echo '{word}' ::: a"));
        ran.check(0, &format!("{word} a\n"));
        ran.check_said(0, &[&format!("'{word}' is passed on unchanged")]);
    }
    for line in
        ["-q -- echo '$HOME' ::: a", "-- echo '$1' '$x.y' ::: a", "-- sh -c 'echo $HOME' ::: a"]
    {
        assert_eq!(Place::new().run_typed(line).stderr, "", "{line}");
    }
}

#[test]
fn a_line_of_a_job_file_that_needs_a_shell_is_refused() {
    for (line, operator) in [
        ("touch started && echo b", "&&"),
        ("touch started | wc", "|"),
        ("touch started; echo b", ";"),
        ("touch started > out", ">"),
        ("touch started 2>/dev/null", "2>/dev/null"),
        ("touch started &", "&"),
    ] {
        let place = Place::new();
        place.write("jobs", format!("echo first\n{line}\n"));
        let ran = place.run_typed("--job-file jobs");
        ran.check(102, "");
        let said = format!("so {operator} would be an argument: quote it");
        ran.check_said(102, &["line 2 of jobs", &said, "--input FILE -- sh -c"]);
    }
    let place = Place::new();
    place.write("jobs", "for x in a\n");
    place.run_typed("--job-file jobs").check_said(102, &["line 1 of jobs", "--shell"]);
    place.write("jobs", "echo 'a && b' \"|\" \\; a&b\n");
    place.run_typed("--job-file jobs").check(0, "a && b | ; a&b\n");
}

#[test]
fn a_long_input_is_cut_in_messages() {
    let place = Place::new();
    place.write("list", "x".repeat(100_000));
    let ran = place.run_typed("--input list --retries 1 -- false");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.len() < 2_000, "{} bytes", ran.stderr.len());
    assert!(ran.stderr.contains("job 1 exited with 1: false xxx"), "{}", ran.stderr);
}

/// Only names like that of the option are shown, and not all options.
#[test]
fn a_misspelt_key_of_a_file_names_options_like_it() {
    for (key, said) in [
        ("retreis", "retries is similar"),
        ("worksrs", "workers, workdir are similar"),
        ("retrys", "retries is similar"),
        ("arg_spe", "arg_sep is similar"),
        ("resume_faild", "resume_failed is similar"),
        ("colour", "`gangline run --help` lists the options"),
    ] {
        let place = Place::new();
        place.write("options.yaml", format!("{key}: 2\ncommand: [echo]\n"));
        let ran = place.run_typed("--config options.yaml ::: a");
        ran.check_said(102, &[&format!("there is no option {key:?}; {said}\n")]);
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}

#[test]
fn a_misspelt_command_names_one_like_it() {
    for (typed, meant) in
        [("rnu", "run"), ("rn", "run"), ("runn", "run"), ("mna", "man"), ("servr", "serve")]
    {
        let place = Place::new();
        let ran = place.ran(&mut place.gangline([typed]));
        ran.check_said(102, &[&format!("a similar subcommand exists: '{meant}'")]);
    }
    let place = Place::new();
    let ran = place.ran(&mut place.gangline(["xyz"]));
    assert!(!ran.stderr.contains("similar"), "{ran:?}");
}
