//! Several sources of inputs, and jobs with several inputs.

use std::io::Write;

use crate::support::Place;

/// Checks what the jobs print, in order, with the files `abc` and `12`, a letter or a digit on each line.
#[track_caller]
fn prints(line: &str, stdout: &str) {
    let place = Place::new();
    place.write("abc", "a\nb\nc\n");
    place.write("12", "1\n2\n");
    place.write("args", "printf '[%s]' \"$@\"; echo");
    place.run_typed(&line.replace("ARGS", "sh args")).check(0, stdout);
}

#[test]
fn several_sources_give_all_combinations() {
    prints("echo ::: a b ::: 1 2", "a 1\na 2\nb 1\nb 2\n");
    prints("echo {2}{1} :::: abc ::: 1 2", "1a\n2a\n1b\n2b\n1c\n2c\n");
    prints("echo {3}-{1} ::: a ::: b c ::: d", "d-a\nd-a\n");
    prints("-a abc -a 12 echo", "a 1\na 2\nb 1\nb 2\nc 1\nc 2\n");
    prints("--arg-file 12 echo {1} {2} ::: x", "1 x\n2 x\n");
    prints("echo :::: 12 12", "1 1\n1 2\n2 1\n2 2\n");
    prints("echo ::: a b ::: ", "");
    prints("echo ::: ::: a b", "");
}

#[test]
fn sources_may_go_in_step() {
    prints("echo ::: a b c :::+ 1 2", "a 1\nb 2\n");
    prints("echo ::: a b :::+ 1 2 ::: X Y :::+ 8 9", "a 1 X 8\na 1 Y 9\nb 2 X 8\nb 2 Y 9\n");
    prints("echo :::: abc ::::+ 12", "a 1\nb 2\n");
    prints("-a abc echo :::+ x y z", "a x\nb y\nc z\n");
    prints("echo ::::+ abc 12", "a 1\nb 2\n");
    prints("echo :::+ a b", "a\nb\n");
    prints("--link echo ::: a b c ::: 1 2", "a 1\nb 2\nc 1\n");
    prints("--xapply echo :::: abc 12 ::: x", "a 1 x\nb 2 x\nc 1 x\n");
}

#[test]
fn other_words_may_begin_the_inputs() {
    prints("--arg-sep ,, -- echo ::: ,, a b :::: 12", "::: a 1\n::: a 2\n::: b 1\n::: b 2\n");
    prints("--arg-file-sep // -- echo ::: a b // 12", "a 1\na 2\nb 1\nb 2\n");
    prints("--arg-sep ,, -- echo ,, a b ,,+ c d", "a c\nb d\n");
    let place = Place::new();
    place.write("o.yaml", "arg_sep: ','\ncommand: [echo]\n");
    place.run_typed("--config o.yaml , a b").check(0, "a\nb\n");
}

#[test]
fn standard_input_is_one_source_of_several() {
    let place = Place::new();
    place
        .run_typed_on("-j1 echo {2} {1} ::: x y :::: -", "1\n2\n")
        .check(0, "1 x\n2 x\n1 y\n2 y\n");
    place.run_typed_on("-j1 echo :::: - ::: x y", "1\n2\n").check(0, "1 x\n1 y\n2 x\n2 y\n");
    let stdin = place.run_typed_on("-j1 -a - echo ::: x :::: -", "1\n2\n");
    stdin.check_said(102, &["only one source can be standard input"]);
}

#[test]
fn the_first_source_is_read_as_it_comes() {
    let place = Place::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = place.typed("run -j1 -- echo :::: - ::: 1 2");
    let mut running = place.start(command.stdin(reader));
    drop(command);
    (&writer).write_all(b"a\n").unwrap();
    let mut lines = [0; 8];
    running.read_stdout(&mut lines);
    assert_eq!(&lines, b"a 1\na 2\n");
    drop(writer);
    running.ran().check(0, "");
}

#[test]
fn a_missing_file_among_several_starts_nothing() {
    let place = Place::new();
    place.write("abc", "a\n");
    place
        .run_typed("-- touch started :::: abc missing")
        .check_said(104, &["missing cannot be read"]);
    assert!(!place.path("started").exists());
}

#[test]
fn an_input_has_columns() {
    let place = Place::new();
    place.write("t", "a, b c\nd,e,f\ng\n");
    let line = "--colsep , -a t -- printf '[%s]' {2} x{3}y {1}";
    place.run_typed(&format!("-j1 {line}")).check(0, "[b c][xy][a][e][xfy][d][xy][g]");
    place.run_typed("-C, -a t --trim n -- printf '[%s]' {2}").check(0, "[ b c][e][]");
    place
        .run_typed("--colsep ' *, *' --trim n -a t -- printf '[%s]'")
        .check(0, "[a][b c][d][e][f][g]");
    place.run_typed("--colsep , echo {4} {1} ::: A,B ::: e,f").check(0, "f A\n");
    place.write("tabs", "a\t\"b\nc\td\n");
    place.run_typed("--colsep '\\t' -a tabs -- echo {2}").check(0, "\"b\nd\n");
}

#[test]
fn names_may_stand_in_the_first_line() {
    prints("--header : -- echo {n}{l.}x ::: l a.b c ::: n 1 2", "1ax\n2ax\n1cx\n2cx\n");
    let place = Place::new();
    place.write("t", "file name;n\nd/a.b;1\n");
    let line = "--header : --colsep ';' -a t -- echo '{file name/}' {n} {1}";
    place.run_typed(line).check(0, "a.b 1 d/a.b\n");
    let twice = place.run_typed("--header : -- echo ::: a 1 ::: a 2");
    twice.check_said(104, &["there are two columns \"a\""]);
    let none = place.run_typed("--header : -- echo {m} ::: a 1");
    none.check_said(102, &["there is no column for {m}; the columns are {a}"]);
    place.run_typed("--header : -- echo :::").check_said(104, &["no column names"]);
}

#[test]
fn a_table_may_have_tabs() {
    let place = Place::new();
    place.write("t.tsv", "a,x\tb\n1\t\"2\t3\"\n");
    place.run_typed("--tsv t.tsv -- printf '[%s]' {b} '{a,x}'").check(0, "[2\t3][1]");
    place.write("blanks.csv", "a,b\n x , y\n");
    place.run_typed("--csv blanks.csv -- printf '[%s]'").check(0, "[ x ][ y]");
    place.run_typed("--csv blanks.csv --trim lr -- printf '[%s]'").check(0, "[x][y]");
    place.write("bad.tsv", "a\tb\n1\t\"2\n");
    place.run_typed("--tsv bad.tsv -- echo").check_said(104, &["line 2, column 3"]);
    place.run_typed("--tsv t.tsv -- echo {b}-{3} ::: x y").check(0, "2\t3-x\n2\t3-y\n");
}

#[test]
fn a_job_may_have_several_inputs() {
    prints("-n 2 -- ARGS x{}y ::: a b c", "[xay][xby]\n[xcy]\n");
    prints("-N 2 -- ARGS {1} {2} {2.}z ::: a b.x c", "[a][b.x][bz]\n[c][z]\n");
    prints("-n4 -- ARGS {-1} {-2} ::: 1 2 3 4 5", "[4][3]\n[5]\n");
    prints("-n 2 -a abc -- ARGS ::: 1 2", "[a][1][a][2]\n[b][1][b][2]\n[c][1][c][2]\n");
    prints("-n 0 -- ARGS hi ::: a b", "[hi]\n[hi]\n");
    prints("-n 0 --shell -- 'echo $# $1' ::: a b", "0\n0\n");
    prints("-n 2 --shell -- 'echo $# $2' ::: a b c", "2 b\n1\n");
    prints("-n 2 -- 'A={}' sh -c 'echo $A' ::: a b", "a b\n");
}

#[test]
fn a_command_line_takes_as_many_inputs_as_fit() {
    prints("-j2 -X -- ARGS x{}y{.} ::: a b c d e", "[xaya][xbyb][xcyc]\n[xdyd][xeye]\n");
    prints("-j2 -m -- ARGS x{}y ::: a b c d e", "[xa][b][cy]\n[xd][ey]\n");
    prints("-j4 --xargs -- echo ::: 1 2 3 4 5 6 7 8 9 10", "1 2 3 4 5 6 7 8 9 10\n");
    prints("-j4 -X -- echo ::: 1 2 3 4 5 6 7 8 9 10", "1 2 3\n4 5 6\n7 8 9\n10\n");
    prints("-j1 -X -n 3 -- echo ::: 1 2 3 4", "1 2 3\n4\n");
    prints("-j1 -s 11 -- echo ::: 1 2 3 4 5", "1 2 3\n4 5\n");
    let place = Place::new();
    let list: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
    let ran = place.run_typed_on("-j1 --xargs -- echo", list.join("\n"));
    assert_eq!(ran.stdout.split_ascii_whitespace().collect::<Vec<_>>(), list);
    assert!((5..9).contains(&ran.stdout.lines().count()), "{} lines", ran.stdout.lines().count());
}

#[test]
fn inputs_may_be_left_out() {
    prints("-E b -- echo ::: a b c", "a\n");
    prints("-E b -- echo :::: abc 12", "a 1\na 2\n");
    prints("-r -- echo x{} ::: a '' c", "xa\nxc\n");
    let place = Place::new();
    place.run_typed_on("-r -- echo x", "\n\na\n").check(0, "x a\n");
}

#[test]
fn blanks_may_be_removed() {
    for (trim, stdout) in
        [("n", "[ a ]"), ("l", "[a ]"), ("r", "[ a]"), ("lr", "[a]"), ("rl", "[a]")]
    {
        let line = format!("--trim {trim} -- printf '[%s]' ::: ' a '");
        Place::new().run_typed(&line).check(0, stdout);
    }
}

#[test]
fn another_character_may_separate_inputs() {
    let place = Place::new();
    place.run_typed_on("-d , -- printf '[%s]'", "a,b\n").check(0, "[a][b\n]");
    place.run_typed_on("-d '\\t' -- printf '[%s]'", "a\tb").check(0, "[a][b]");
    place.run_typed_on("-d '\\0' -- printf '[%s]'", "a\0b").check(0, "[a][b]");
}

#[test]
fn words_are_not_separated_without_a_word() {
    let ran = Place::new().run_typed("-d , -- echo ::: a,b");
    ran.check_said(102, &["each word is an input"]);
    let place = Place::new();
    place.write("list", "a,b");
    place.run_typed("-d , -- echo ::: 1,2 :::: list").check(0, "1,2 a\n1,2 b\n");
}

#[test]
fn inputs_are_not_dropped_without_a_word() {
    for line in ["echo ::: a b :::", "echo ::: a :::+", "echo ::: ::: a"] {
        Place::new().run_typed(&format!("-- {line}")).check_said(0, &["no job runs"]);
    }
    let ran = Place::new().run_typed("-- echo :::");
    assert_eq!(ran.stderr, "", "a list may be empty");
}

#[test]
fn a_shuffle_runs_each_once() {
    let place = Place::new();
    let inputs: Vec<String> = (100..150).map(|number| number.to_string()).collect();
    let ran = place.run_typed(&format!("--shuf -j2 -- echo ::: {}", inputs.join(" ")));
    assert_eq!(ran.sorted(), inputs);
    assert_ne!(ran.stdout.lines().collect::<Vec<_>>(), inputs, "the order is another");
}

#[test]
fn several_inputs_are_resumed_by_content() {
    let place = Place::new();
    let line = |sources: &str| format!("--journal j --resume -- echo {{2}} {{1}} ::: {sources}");
    place.run_typed(&line("a b ::: 1")).check(0, "1 a\n1 b\n");
    place.run_typed(&line("b c ::: 1 2")).check(0, "2 b\n1 c\n2 c\n");
    let refused = place.run_typed("--journal j --resume -I% -- echo {2} {1} ::: a ::: 1");
    refused.check(105, "");
}

#[test]
fn a_warm_worker_gets_several_inputs() {
    let place = Place::new();
    let worker = "read a; echo '{\"gangline\":1}'; n=0; while read l; do n=$((n+1)); echo \"$l\" >> lines; \
                  echo \"{\\\"item\\\":$n,\\\"output\\\":null}\"; done";
    place.write("worker", worker);
    place.run_typed("--warm -j1 -- sh worker ::: a ::: 1 2").check(0, "");
    place.run_typed("--warm -j1 --header : -- sh worker ::: x a ::: y 1").check(0, "");
    let none = place.run_typed("--warm -j1 -n 0 -- sh worker ::: a");
    none.check_said(102, &["-n 0 would send none"]);
    let lines = place.read("lines");
    let inputs: Vec<&str> = lines
        .lines()
        .filter_map(|line| line.split_once("\"input\":"))
        .map(|(_, input)| input)
        .collect();
    assert_eq!(inputs, [r#"["a","1"]}"#, r#"["a","2"]}"#, r#"{"x":"a","y":"1"}}"#]);
}

#[test]
fn a_mark_of_the_byte_order_is_no_part_of_an_input() {
    let place = Place::new();
    place.write("list", "\u{feff}a\nb\n");
    place.write("names", "\u{feff}x\n1\n");
    place.write("jobs", "\u{feff}echo [a]\n");
    place.write("nul", "\u{feff}a\0b\0");
    place.write("only", "\u{feff}");
    place.write("number", "\u{feff}2\n");
    for (line, expected) in [
        ("-a list -- echo [{}]", "[a]\n[b]\n"),
        ("-- echo [{}] :::: list", "[a]\n[b]\n"),
        ("--header : -a names -- echo {x}", "1\n"),
        ("--job-file jobs", "[a]\n"),
        ("-0 -a nul -- echo [{}]", "[a]\n[b]\n"),
        ("-d '\\n' -a list -- echo [{}]", "[a]\n[b]\n"),
        ("-a only -- echo [{}]", ""),
        ("-j number -- echo ::: a", "a\n"),
    ] {
        place.run_typed(line).check(0, expected);
    }
    place.run_typed_on("-- echo [{}]", "\u{feff}a\nb\u{feff}\n").check(0, "[a]\n[b\u{feff}]\n");
}

#[test]
fn a_line_ends_before_its_carriage_return() {
    let place = Place::new();
    place.write("list", "a\r\nb c\r\n\r\nd");
    place.write("names", "x\r\n1\r\n");
    place.write("jobs", "echo [a]\r\n\r\necho '[b]'\r\n");
    for (line, expected) in [
        ("-a list -- echo [{}]", "[a]\n[b c]\n[]\n[d]\n"),
        ("-r -- echo [{}] :::: list", "[a]\n[b c]\n[d]\n"),
        ("-E d -a list -- echo [{}]", "[a]\n[b c]\n[]\n"),
        ("--header : -a names -- echo [{x}]", "[1]\n"),
        ("--job-file jobs", "[a]\n[b]\n"),
        ("-d '\\n' -a names -- echo [{}]", "[x\r]\n[1\r]\n"),
    ] {
        place.run_typed(line).check(0, expected);
    }
    place.run_typed_on("-- echo [{}]", "a\r\nb\rc\r").check(0, "[a]\n[b\rc\r]\n");
}
