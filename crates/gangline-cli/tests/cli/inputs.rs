//! Sources of inputs, and their errors.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;

use crate::support::Place;

/// Prints the bytes of each input in hexadecimal.
const HEX: &str = "--shell -- 'printf %s \"$1\" | od -An -v -tx1 | tr -d \" \\n\"; echo'";

/// Checks the inputs read from standard input and from a file.
#[track_caller]
fn check(options: &str, text: &[u8], inputs: &[&[u8]]) {
    let hex = |input: &[u8]| input.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let stdout: String = inputs.iter().map(|input| hex(input) + "\n").collect();
    let place = Place::new();
    place.run_typed_on(&format!("{options} {HEX}"), text).check(0, &stdout);
    place.write("list", text);
    place.run_typed(&format!("{options} --input list {HEX}")).check(0, &stdout);
}

/// Checks that reading fails after the jobs that print `stdout`, and why.
#[track_caller]
fn fails(options: &str, text: &[u8], stdout: &str, parts: &[&str]) {
    let place = Place::new();
    place.write("list", text);
    let ran = place.run_typed(&format!("{options} --input list -- echo {{}}"));
    ran.check(104, stdout);
    ran.check_said(104, parts);
}

#[test]
fn lines_are_inputs() {
    check("", b"a\nb c\n", &[b"a", b"b c"]);
    check("", b"a\nno end", &[b"a", b"no end"]);
    check("", b"", &[]);
    check("", b"\n\n a \n", &[b"", b"", b" a "]);
    check("", b"a\r\nb\r", &[b"a", b"b\r"]);
    check("", b"\"q\\\t'$x\n", &[b"\"q\\\t'$x"]);
}

#[test]
fn a_nul_may_end_an_input() {
    check("-0", b"a\nb\0c\0", &[b"a\nb", b"c"]);
    check("--null", b"a\0\0no end", &[b"a", b"", b"no end"]);
}

#[test]
fn inputs_are_bytes() {
    check("", b"\xff\xfe\n\xc3\xa4\n\x80\n", &[b"\xff\xfe", b"\xc3\xa4", b"\x80"]);
    let every: Vec<u8> = (1..=255).filter(|byte| *byte != b'\n').collect();
    check("", &every, &[&every]);
}

#[test]
fn typed_inputs_are_bytes() {
    let arguments = ["--", "printf", "[%s]", ":::"].map(OsString::from);
    let inputs = [b"\xff".to_vec(), b"a\nb".to_vec(), Vec::new()].map(OsString::from_vec);
    let place = Place::new();
    let mut command = place.gangline(["run"]);
    let output = command.args(arguments).args(inputs).output().unwrap();
    assert_eq!(output.stdout, b"[\xff][a\nb][]");
}

#[test]
fn no_inputs_are_no_jobs() {
    let place = Place::new();
    place.run_typed("-- touch started :::").check(0, "");
    place.run_typed("-- touch started").check(0, "");
    assert!(!place.path("started").exists());
}

#[test]
fn a_nul_is_in_no_input() {
    fails("", b"a\nb\0c\nd\n", "a\n", &["input 2 of list has a NUL in it", "use -0"]);
}

#[test]
fn an_input_that_is_too_long_is_refused() {
    let long = "x".repeat((1 << 20) + 1);
    fails("", format!("a\n{long}\nb\n").as_bytes(), "a\n", &["input 2 of list is longer"]);
}

/// The system's limit is lower: the job fails, and the others run.
#[test]
fn an_input_that_no_program_takes_fails_its_job() {
    let place = Place::new();
    place.write("list", format!("a\n{}\nb\n", "x".repeat(1 << 20)));
    let ran = place.run_typed("--input list -- echo {}");
    assert_eq!((ran.code, &*ran.stdout), (Some(1), "a\nb\n"));
    assert!(ran.stderr.contains("job 2 could not be started"));
}

#[test]
fn a_missing_file_is_reported() {
    for option in ["--input", "--csv", "--job-file"] {
        let command = if option == "--job-file" { "" } else { "-- touch started {}" };
        let place = Place::new();
        let ran = place.run_typed(&format!("{option} missing {command}"));
        ran.check_said(104, &["missing cannot be read", "No such file"]);
        assert!(!place.path("started").exists());
    }
}

#[test]
fn a_directory_is_no_list() {
    let place = Place::new();
    let ran = place.run_typed("--input tmp -- touch started {}");
    ran.check_said(104, &["tmp cannot be read", "directory"]);
}

#[test]
fn a_list_may_come_from_a_pipe() {
    let place = Place::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = place.typed("run -j1 --input - -- echo");
    let mut running = place.start(command.stdin(reader));
    drop(command);
    // An input becomes a job before the next one arrives.
    let mut line = [0; 2];
    std::io::Write::write_all(&mut &writer, b"a\n").unwrap();
    running.read_stdout(&mut line);
    assert_eq!(&line, b"a\n");
    std::io::Write::write_all(&mut &writer, b"b\n").unwrap();
    drop(writer);
    running.ran().check(0, "b\n");
}

#[test]
fn jobs_do_not_read_the_inputs() {
    let place = Place::new();
    let ran = place.run_typed_on("-j1 --shell -- 'cat; echo $1'", "a\nb\nc\n");
    ran.check(0, "a\nb\nc\n");
}

/// Checks the words that the records of a table become.
#[track_caller]
fn table(csv: &[u8], words: &str, stdout: &str) {
    let place = Place::new();
    place.write("t.csv", csv);
    place.run_typed(&format!("--csv t.csv -- printf '[%s]' {words}")).check(0, stdout);
}

/// Checks that a table is refused, and which jobs ran before.
#[track_caller]
fn no_table(csv: &[u8], code: i32, stdout: &str, part: &str) {
    let place = Place::new();
    place.write("t.csv", csv);
    let ran = place.run_typed("--csv t.csv -- echo {a}");
    ran.check(code, stdout);
    ran.check_said(code, &[part]);
}

#[test]
fn records_are_inputs() {
    table(b"a,b\n1,2\n3,4\n", "{b} {a}", "[2][1][4][3]");
    table(b"a,b\n1,2", "{a}-{b}", "[1-2]");
    table(b"a,b\n", "{a}", "");
    table(b"a,b\r\n1,2\r\n", "{b}", "[2]");
    table(b"\xef\xbb\xbfa,b\n1,2\n", "{a}", "[1]");
    table("file name,größe\nx,3\n".as_bytes(), "'{file name}' {größe}", "[x][3]");
}

#[test]
fn a_field_may_be_in_quotes() {
    table(b"a,b\n\"x,y\",\"he said \"\"no\"\"\"\n", "{a} {b}", "[x,y][he said \"no\"]");
    table(b"a\n\"two\nlines\"\n", "{a}", "[two\nlines]");
    table(b"a\n\"$(touch x)\"\n", "{a}", "[$(touch x)]");
}

#[test]
fn an_unclosed_quote_swallows_no_rows() {
    no_table(b"a,b\n1,\"2\n3,4\n", 104, "", "line 2, column 3");
    no_table(b"a,b\n1,2\n3,\"4\n5,6\n", 104, "1\n", "line 3, column 3");
    no_table(b"a,\"b\n1,2\n", 104, "", "line 1, column 3");
    // A later quote closes it, and the rows in between become one field.
    no_table(b"a,b\n1,\"2\n3,\"4\n5,6\n", 104, "", "line 2, column 3");
    no_table(b"\xef\xbb\xbf\"a\",b\n1,\"2\n", 104, "", "line 2, column 3");
    table(b"\xef\xbb\xbf\"a\"\n\"1,\"\"2\"\n", "{a}", "[1,\"2]");
}

#[test]
fn each_column_has_a_name() {
    no_table(b"a,\n1,2\n", 104, "", "column 2");
    no_table(b"\"\"\n1\n", 104, "", "column 1");
}

#[test]
fn a_column_named_as_a_mark_is_the_column() {
    table(b"gpu,worker\n7,8\n", "{gpu} {worker}", "[7][8]");
}

#[test]
fn an_invalid_table_is_refused() {
    no_table(b"", 104, "", "no column names");
    no_table(b"a,b,a\n1,2,3\n", 104, "", "two columns \"a\"");
    no_table(b"b\n1\n", 102, "", "no column for {a}; the columns are {b}");
    no_table(b"a,b\n1,2\n3\n", 104, "1\n", "not a table");
    no_table(b"a,b\n1,2\n3,4,5\n", 104, "1\n", "not a table");
    no_table(b"a\n1\nx\0y\n", 104, "1\n", "has a NUL in it");
}

#[test]
fn all_columns_are_the_input() {
    table(b"a,b\n1,2\n3 x,4\n", "", "[1][2][3 x][4]");
    table(b"a,b\n1,2\n", "y{}z {2} {-2} x={1}", "[y1][2z][2][1][x=1]");
    table(b"a b,c\nd/e.x,2\n", "'{a b/}' '{a b.}' {c//}", "[e.x][d/e][.]");
}

#[test]
fn a_command_without_a_mark_for_the_input_warns() {
    let place = Place::new();
    place.write("t.csv", "a\n1\n2\n");
    let ran = place.run_typed("--csv t.csv -- echo {worker} -j1");
    assert_eq!((ran.code, ran.stdout.lines().count()), (Some(0), 2));
    ran.check_said(0, &["every job runs the same command"]);
}

#[test]
fn what_was_meant_for_an_option_is_no_command() {
    for (line, part) in [
        ("--use-gpu true -- touch started ::: x", "true was taken for the command"),
        ("--gpu-list 0 1 -- touch started ::: x", "1 was taken for the command"),
        ("-- touch started :::: - -", "only one source can be standard input"),
        ("-a - -- touch started :::: -", "only one source can be standard input"),
    ] {
        let place = Place::new();
        place.run_typed(line).check_said(102, &[part]);
        assert!(!place.path("started").exists());
    }
}

#[test]
fn a_file_after_jsonl_is_no_command() {
    let place = Place::new();
    place.write("x.jsonl", "1\n");
    place.write("inputs", "1\n");
    for (line, file) in [
        ("--jsonl x.jsonl -- touch started", "x.jsonl"),
        ("--warm --jsonl ./x.jsonl python3 worker", "./x.jsonl"),
        ("--jsonl inputs", "inputs"),
        ("--jsonl missing.ndjson", "missing.ndjson"),
        ("--jsonl - -- touch started", "-"),
    ] {
        let said = format!("{file} was taken for the command, and is no program");
        let instead = format!("write --jsonl --input {file}");
        place.run_typed(line).check_said(102, &[&said, &instead]);
    }
    let ran = place.ran(&mut place.typed("check --jsonl x.jsonl -- touch started"));
    ran.check_said(102, &["x.jsonl was taken for the command"]);
    assert!(!place.path("started").exists());
    let ran = place.run_typed_on("--jsonl cat.json", "1\n");
    ran.check_said(102, &["cat.json was taken"]);
    place.run_typed_on("--jsonl echo", "1\n").check(0, "1\n");
}

#[test]
fn a_table_is_not_a_list_too() {
    let place = Place::new();
    place.write("list", "a\n");
    for line in ["--input list --csv list -- echo", "--tsv list --csv list -- echo"] {
        let ran = place.run_typed(line);
        assert_eq!((ran.code, &*ran.stdout), (Some(102), ""), "{line}: {ran:?}");
    }
}

#[test]
fn lines_of_a_job_file_are_commands() {
    let place = Place::new();
    place.write(
        "jobs",
        "echo 'a  b' $x `c`\n\n# echo no\n  X='1 2' sh -c 'echo \"$X\"'\necho {#} \\\"\n",
    );
    place.run_typed("--job-file jobs").check(0, "a  b $x `c`\n1 2\n3 \"\n");
    place.run_typed("--job-file jobs -- echo").check_said(102, &["--job-file"]);
}

#[test]
fn many_inputs_are_read() {
    let place = Place::new();
    let list: String = (0..400).map(|i| format!("{i}\n")).collect();
    place.run_typed_on("-j4 -- echo", &list).check(0, &list);
}

#[test]
fn a_closed_standard_input_is_none() {
    let place = Place::new();
    let mut command = place.typed("run -- echo");
    let ran = place.ran(command.stdin(File::open("/dev/null").unwrap()));
    ran.check(0, "");
}
