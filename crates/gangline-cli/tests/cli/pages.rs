//! Help texts, pages, and options from files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::Place;

/// The output of a command that succeeds without messages.
#[track_caller]
fn printed(place: &Place, line: &str) -> String {
    let mut command = place.typed(line);
    let ran = place.ran(command.env("COLUMNS", "100"));
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{line}");
    ran.stdout
}

fn snapshot(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/snapshots").join(format!("{name}.txt"))
}

/// Compares a page with its snapshot; GANGLINE_BLESS=1 replaces the snapshot.
#[track_caller]
fn check_page(name: &str, line: &str) {
    let page = printed(&Place::new(), line);
    if std::env::var_os("GANGLINE_BLESS").is_some_and(|bless| bless == "1") {
        fs::create_dir_all(snapshot(name).parent().unwrap()).unwrap();
        fs::write(snapshot(name), &page).unwrap();
    }
    let kept = fs::read_to_string(snapshot(name)).unwrap_or_default();
    assert_eq!(
        page, kept,
        "if the page is right: GANGLINE_BLESS=1 cargo test -p gangline-cli --test cli pages"
    );
}

#[test]
fn help_matches_its_snapshot() {
    check_page("help", "--help");
    check_page("run", "run --help");
    check_page("run-short", "run -h");
    check_page("check", "check --help");
    check_page("dockerfile", "dockerfile --help");
    check_page("serve", "serve --help");
    check_page("worker", "worker --help");
    check_page("workers", "workers --help");
    check_page("devices", "devices --help");
    check_page("config", "config --help");
    check_page("report", "report --help");
    check_page("completions", "completions --help");
    check_page("man", "man --help");
}

#[test]
fn the_version_is_that_of_the_library() {
    let version = format!("gangline {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(printed(&Place::new(), "-V"), version);
    let protocols = "protocols of warm workers: 1, 2\n";
    assert_eq!(printed(&Place::new(), "--version"), version + protocols);
}

#[test]
fn hidden_options_are_not_mentioned() {
    for line in ["--help", "run --help", "man", "man run", "completions bash"] {
        let page = printed(&Place::new(), line);
        assert!(!page.contains("PID") && !page.contains("supervisor="), "{line}");
    }
}

#[test]
fn help_fits_a_terminal_of_80_columns() {
    let place = Place::new();
    for (line, most) in [("run -h", 70), ("run --help", 500), ("-h", 26), ("--help", 70)] {
        let ran = place.ran(place.typed(line).env("COLUMNS", "80"));
        let widest = ran.stdout.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(widest.chars().count() <= 80, "{line}: {widest}");
        let lines = ran.stdout.lines().count();
        assert!(lines <= most, "{line} has {lines} lines");
    }
    let (short, long) = (printed(&place, "run -h"), printed(&place, "run --help"));
    assert!(short.contains("--gpu-list") && !short.contains("--colsep"), "{short}");
    assert!(long.contains("Examples:") && long.contains("--colsep"), "{long}");
}

#[test]
fn every_option_is_in_the_manual() {
    let place = Place::new();
    let page = printed(&place, "man run").replace("\\-", "-").replace("\\(rs", "\\");
    for option in printed(&place, "run --help").split_ascii_whitespace() {
        let option = option.trim_end_matches([',', ':', ';', '.']);
        let is_option = option.starts_with("--")
            && option.len() > 3
            && option[2..].chars().all(|c| c.is_ascii_lowercase() || c == '-');
        assert!(!is_option || page.contains(option), "{option}");
    }
    for part in
        [".TH gangline-run 1", "--tsv", "tabs between them", "EXIT STATUS", "{//}", "EXAMPLES"]
    {
        assert!(page.contains(part), "{part} is not in {page}");
    }
}

#[test]
fn each_command_has_a_page_of_its_own() {
    let place = Place::new();
    printed(&place, "man --all pages/man1");
    let names = place.names("pages/man1");
    let expected = [
        "check",
        "completions",
        "config",
        "devices",
        "dockerfile",
        "man",
        "report",
        "run",
        "serve",
        "worker",
        "workers",
    ];
    let expected = expected.map(|name| format!("gangline-{name}.1"));
    assert_eq!(names[..expected.len()], expected);
    assert_eq!(names[expected.len()..], ["gangline.1"]);
    for name in names {
        let page = place.read(&format!("pages/man1/{name}"));
        let title = name.trim_end_matches(".1");
        // Title, section, date, source and manual, which man puts at the head and the foot.
        let source = concat!("gangline ", env!("CARGO_PKG_VERSION"));
        let head = format!(".TH {title} 1 \"\" \"{source}\" \"User Commands\"\n");
        assert!(page.contains(&head), "{page}");
        assert!(page.contains("\n.nh\n"), "man would divide names of variables: {page}");
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION"] {
            assert_eq!(page.matches(&format!("\n.SH {section}\n")).count(), 1, "{name}: {page}");
        }
        check_with(
            &place,
            "man",
            &["--warnings", "-E", "UTF-8", "-l", "-Tutf8"],
            &format!("pages/man1/{name}"),
        );
    }
    let typed = printed(&place, "man devices");
    assert_eq!(typed, place.read("pages/man1/gangline-devices.1"));
    place.ran(&mut place.typed("man nothing")).check_said(102, &["[possible values: run, "]);
}

#[test]
fn shells_can_complete() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&place, &format!("completions {shell}"));
        for part in ["gangline", "gpu-list", "resume-failed", "devices", "colsep"] {
            assert!(script.contains(part), "{shell}: {part}");
        }
        place.write(shell, script);
    }
    for shell in ["bash", "zsh", "fish"] {
        check_with(&place, shell, &["-n"], shell);
    }
}

/// Checks that a program finds nothing to say about a file. Says so if the program is not installed.
#[track_caller]
#[expect(clippy::print_stderr, reason = "a check that was left out is mentioned")]
fn check_with(place: &Place, program: &str, options: &[&str], file: &str) {
    let mut command = std::process::Command::new(program);
    let checked =
        command.args(options).arg(place.path(file)).env("HOME", place.directory()).output();
    let Ok(checked) = checked else {
        eprintln!("{program} is not installed, so {file} is not checked");
        return;
    };
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && said.is_empty(), "{program} {file}: {said}");
}

#[test]
fn devices_are_listed() {
    let place = Place::new();
    let json: serde_json::Value = serde_json::from_str(&printed(&place, "devices --json")).unwrap();
    let usable = json["cpu"]["usable"].as_u64().unwrap();
    assert!(usable >= 1 && json["cpu"]["logical"].as_u64().unwrap() >= usable, "{json}");
    assert!(json["gpus"].is_array(), "{json}");
    let text = printed(&place, "devices");
    assert!(text.starts_with(&format!("cpu      {usable} cores")), "{text}");
}

#[test]
fn a_variable_that_hides_devices_is_mentioned() {
    let place = Place::new();
    let mut command = place.typed("devices");
    let ran = place.ran(command.env("CUDA_VISIBLE_DEVICES", "4,5"));
    assert!(ran.stdout.contains("CUDA_VISIBLE_DEVICES is \"4,5\""), "{ran:?}");
}

fn configs() -> Place {
    let place = Place::new();
    place.write("base.yaml", "a: {b: 1, c: [1, 2]}\nd: text\n");
    place.write("c.yaml", "__BASE__: base.yaml\na: {b: 2}\n");
    place
}

#[test]
fn a_config_says_where_each_value_came_from() {
    let place = configs();
    let text = "a:\n  b: 2       # c.yaml\n  c: [1, 2]  # base.yaml\nd: \"text\"    # base.yaml\n";
    assert_eq!(printed(&place, "config c.yaml"), text);
    let text = printed(&place, "config c.yaml --set a.x=3 --set d=other");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[3..],
        ["  x: 3       # the assignment to a.x", "d: \"other\"   # the assignment to d"]
    );
    place.write("again.yaml", text);
    let again = printed(&place, "config again.yaml");
    assert!(again.contains("d: \"other\"   # again.yaml"), "it is a config file itself: {again}");
}

#[test]
fn a_config_may_take_values_from_the_environment() {
    let place = configs();
    let mut command = place.typed("config c.yaml --env X");
    let ran = place.ran(command.env("X__A__B", "7").env("Y__A__B", "8"));
    assert_eq!(
        (ran.code, ran.stdout.lines().nth(1)),
        (Some(0), Some("  b: 7       # the environment variable X__A__B"))
    );
    let mut command = place.typed("config c.yaml --env X");
    place.ran(command.env("X__A__Z", "7")).check_said(102, &["X__A__Z"]);
}

#[test]
fn a_config_that_is_none_is_refused() {
    let place = configs();
    place.write("bad.yaml", "a: [1\n");
    for (line, said) in [
        ("config missing.yaml", "No such file"),
        ("config bad.yaml", "bad.yaml"),
        ("config c.yaml --set nothing", "nothing"),
        ("config c.yaml --set a.=1", "a segment is empty"),
        ("config", "<FILE>"),
    ] {
        let ran = place.ran(&mut place.typed(line));
        ran.check(102, "");
        ran.check_said(102, &[said]);
        assert!(ran.stderr.matches("No such file").count() <= 1, "it is said once: {ran:?}");
    }
}

/// Checks the output of a run that takes its options from a file.
#[track_caller]
fn configured(config: &str, line: &str, stdout: &str) {
    let place = Place::new();
    place.write("o.yaml", config);
    place.run_typed(line).check(0, stdout);
}

#[test]
fn options_may_come_from_a_file() {
    let gpus = "use_gpu: true\ngpu_list: 2 3\nworkers: 1\ncommand: [echo, '{gpu}', '{}']\n";
    configured(gpus, "--config o.yaml ::: a", "2 3 a\n");
    configured(gpus, "--config=o.yaml -- ::: a", "2 3 a\n");
    configured(
        "gpu_list: [2, 3]\nshare: true\nworkers: 1\n",
        "--config o.yaml -- echo {gpu} ::: a",
        "2 3\n",
    );
    configured("'null': true\ninput: list\n", "--config o.yaml --input /dev/null -- echo", "");
    configured("retries: 2\ndry-run: true\n", "--config o.yaml -- echo ::: 'a b'", "echo 'a b'\n");
    configured("command: [printf, '[%s]', 'x y']\n", "--config o.yaml ::: a b", "[x y][a][x y][b]");
}

#[test]
fn what_is_typed_counts_before_a_file() {
    let config = "gpu_list: 2 3\nworkers: 1\ncommand: [echo, '{gpu}']\n";
    configured(config, "--config o.yaml --gpu-list 7 ::: a", "7\n");
    configured(config, "--gpu-list 7 --config o.yaml ::: a", "7\n");
    configured(config, "--config o.yaml -- echo typed ::: a", "typed a\n");
    configured("use_gpu: false\ngpu_list: 0 1\n", "--config o.yaml -j1 -- echo ::: a", "a\n");
    configured(
        "use_gpu: false\ngpu_list: 0\n",
        "--config o.yaml --use-gpu -- echo {gpu} ::: a",
        "0\n",
    );
    configured("dry_run: false\n", "--config o.yaml -- echo ::: a", "a\n");
}

#[test]
fn invalid_options_of_a_file_are_refused() {
    for (config, said) in [
        ("retreis: 3\n", "there is no option \"retreis\"; retries is similar\n"),
        ("dry_run: 3\n", "dry_run must be true or false, got 3"),
        ("workers: {a: 1}\n", "workers must be a text, a number or a list"),
        ("workers: many\n", "--workers"),
        ("workers: +1\n", "\"workers: +1\" is read as 1: put the value in quotes"),
        ("retries: +1\n", "put the value in quotes"),
        ("workers: '++1'\n", "--workers"),
        ("gpu_list: 3-0\n", "runs backwards"),
        ("config: other.yaml\n", "there is no option \"config\""),
        ("a: [1\n", "o.yaml"),
    ] {
        let place = Place::new();
        place.write("o.yaml", config);
        let ran = place.run_typed("--config o.yaml -- touch ::: started");
        ran.check_said(102, &[said]);
        assert!(!place.path("started").exists(), "{config}");
    }
    Place::new()
        .run_typed("--config missing.yaml -- touch ::: x")
        .check_said(102, &["missing.yaml"]);
}

#[test]
fn a_sign_in_quotes_is_kept() {
    let cores = printed(&Place::new(), "devices --json");
    let cores: serde_json::Value = serde_json::from_str(&cores).unwrap();
    let more = cores["cpu"]["usable"].as_u64().unwrap() + 1;
    let slots: String = (0..more).map(|worker| format!("echo {worker}\n")).collect();
    let inputs = "x ".repeat(more as usize);
    configured(
        "workers: '+1'\n",
        &format!("--config o.yaml --dry-run echo {{worker}} ::: {inputs}"),
        &slots,
    );
    configured(
        "{}\n",
        &format!("-j+1 --config o.yaml --dry-run echo {{worker}} ::: {inputs}"),
        &slots,
    );
    configured("{}\n", &format!("-P +1 --dry-run echo {{worker}} ::: {inputs}"), &slots);
}

#[test]
fn pages_can_be_cut_short() {
    let place = Place::new();
    let mut running = place.start(&mut place.typed("completions zsh"));
    running.close_stdout();
    let ran = running.ran();
    assert!(matches!(ran.code, Some(0 | 141)) && ran.stderr.is_empty(), "{ran:?}");
}
