//! Marks in a command, and their substitution.

use crate::support::Place;

/// Checks the words that `--dry-run` prints, quoted for a shell.
#[track_caller]
fn dry(line: &str, stdout: &str) {
    Place::new().run_typed(&format!("--dry-run {line}")).check(0, stdout);
}

/// Checks the real arguments, each printed in brackets.
#[track_caller]
fn real(line: &str, stdout: &str) {
    let place = Place::new();
    place.write("args", "printf '[%s]' \"$@\"; echo");
    place.run_typed(&line.replace("ARGS", "sh args")).check(0, stdout);
}

/// Checks that an invalid mark is refused before any job starts, and why.
#[track_caller]
fn refused(line: &str, part: &str) {
    let place = Place::new();
    for dry_run in ["", "--dry-run "] {
        let ran = place.run_typed(&format!("{dry_run}{line}"));
        ran.check(102, "");
        ran.check_said(102, &[part]);
    }
    assert!(!place.path("started").exists(), "something was started");
}

#[test]
fn parts_of_the_input_stand_for_marks() {
    dry("echo {} ::: a/b.tar.gz", "echo a/b.tar.gz\n");
    dry("echo {.} {/} {//} {/.} ::: a/b.tar.gz", "echo a/b.tar b.tar.gz a b.tar\n");
    dry("echo {.} {/} {//} {/.} ::: plain", "echo plain plain . plain\n");
    dry("echo {.} ::: dir.d/plain .bashrc", "echo dir.d/plain\necho .bashrc\n");
    real("ARGS {} x{}y ::: 'a b'", "[a b][xa by]\n");
    real("ARGS {//}/out/{/.}.png ::: in/a.mrc", "[in/out/a.png]\n");
}

#[test]
fn the_job_and_its_slot_stand_for_marks() {
    real("-j1 ARGS {#} {worker} {attempt} {} ::: a b", "[1][0][1][a]\n[2][0][1][b]\n");
    real("-j1 ARGS n{#}w{worker}a{attempt} ::: a", "[n1w0a1]\n");
}

#[test]
fn without_a_mark_the_input_is_the_last_word() {
    real("-- ARGS x ::: 'a b' ''", "[x][a b]\n[x][]\n");
    real("-- ARGS x {#} ::: a", "[x][1]\n");
}

#[test]
fn columns_stand_for_marks() {
    let place = Place::new();
    place.write("t.csv", "name,defocus\na.mrc,1.5\n\"b c.mrc\",\"2,5\"\n");
    let ran = place.run_typed("--csv t.csv --dry-run -- prog {name} --d={defocus} {#}");
    ran.check(0, "prog a.mrc --d=1.5 1\nprog 'b c.mrc' --d=2,5 2\n");
}

#[test]
fn a_column_of_several_words_that_is_misspelt_is_not_left_in_the_command() {
    let place = Place::new();
    place.write("t.csv", "my col,b\n1,2\n");
    let dry = "--csv t.csv --dry-run -- prog";
    place.run_typed(&format!("{dry} '{{my col}}'")).check(0, "prog 1\n");
    let refused = place.run_typed(&format!("{dry} 'x{{my coll}}'"));
    refused.check_said(102, &["there is no column for {my coll}; the columns are {my col} {b}"]);
    let program = place.run_typed(&format!("{dry} '{{print $2}}' '{{ \"a\": 1 }}' {{b}}"));
    program.check(0, "prog '{print $2}' '{ \"a\": 1 }' 2\n");
}

#[test]
fn one_gpu_stands_for_a_mark() {
    dry("--gpu-list 0 -- prog -gpu '%(GPU)s' ::: x", "prog -gpu 0\n");
    dry("--gpu-list 2 -- prog -gpu {gpu} {} ::: x", "prog -gpu 2 x\n");
    real("--gpu-list 2 -- ARGS -gpu '%(GPU)s' ::: x", "[-gpu][2]\n");
}

#[test]
fn several_gpus_stand_for_a_mark() {
    dry("--gpu-list '0 1' -j1 -- prog -gpu '%(GPU)s' ::: x", "prog -gpu 0 1\n");
    real("--gpu-list '0 1' -j1 -- ARGS -gpu '%(GPU)s' {} ::: x", "[-gpu][0][1][x]\n");
    real("--gpu-list '0 1' -j1 -- ARGS '--gpus={gpu}' ::: x", "[--gpus=0 1]\n");
    real("--gpu-list '0 1' -j1 -- ARGS '-gpu %(GPU)s' ::: x", "[-gpu 0 1]\n");
}

#[test]
fn every_mark_of_a_word_is_replaced() {
    dry("--gpu-list 3 -- prog '%(GPU)s' -b '%(GPU)s' ::: x", "prog 3 -b 3\n");
    real("--gpu-list 3 -- ARGS '%(GPU)s:{gpu}:{}' ::: x", "[3:3:x]\n");
}

#[test]
fn cuda_wants_commas() {
    let prog = "env sh -c 'echo $CUDA_VISIBLE_DEVICES' sh {} ::: x";
    let line = format!("'CUDA_VISIBLE_DEVICES=%(GPU)s' {prog}");
    real(&format!("--gpu-list '0 1' -j1 -- {line}"), "0,1\n");
    real(&format!("--gpu-list 3 -- {line}"), "3\n");
    real(
        "--gpu-list '0 1' -j1 -- env 'CUDA_VISIBLE_DEVICES={gpu}' printenv CUDA_VISIBLE_DEVICES ::: x",
        "0,1\n",
    );
    dry(
        "--gpu-list '0 1' -j1 -- 'CUDA_VISIBLE_DEVICES=%(GPU)s' prog ::: x",
        "CUDA_VISIBLE_DEVICES=0,1 prog\n",
    );
}

#[test]
fn what_is_between_ids_can_be_said() {
    for (separator, stdout) in [("space", "[0 1]"), ("comma", "[0,1]"), ("colon", "[0:1]")] {
        let line =
            format!("--gpu-list '0 1' -j1 --gpu-separator {separator} -- ARGS {{gpu}} ::: x");
        real(&line, &format!("{stdout}\n"));
    }
}

#[test]
fn a_list_without_gpus_leaves_no_mark() {
    let gpus = "stands for the GPUs of a slot, and some slots have none";
    for list in ["", "--use-gpu=false --gpu-list '0 1'", "--devices cpu*2"] {
        refused(&format!("{list} -- touch started '%(GPU)s' ::: x"), gpus);
        refused(&format!("{list} -- touch started {{gpu}} ::: x"), gpus);
        refused(&format!("{list} -- 'CUDA_VISIBLE_DEVICES=%(GPU)s' touch started ::: x"), gpus);
    }
}

#[test]
fn an_empty_list_starts_nothing() {
    for list in ["''", "' '", "99", "'99 99'"] {
        let place = Place::new();
        let line = format!("--gpu-list {list} -- touch started '%(GPU)s' ::: x");
        let ran = place.run_typed(&line);
        assert!(matches!(ran.code, Some(102 | 103)), "{line}: {ran:?}");
        assert!(!ran.stderr.is_empty() && !place.path("started").exists(), "{line}: {ran:?}");
    }
}

#[test]
fn percent_signs_are_no_marks() {
    dry("--gpu-list 0 -- prog --pct 50% '%(GPU)s' ::: x", "prog --pct 50% 0\n");
    real("ARGS 50% %d %s '%(' %%s {} ::: x", "[50%][%d][%s][%(][%%s][x]\n");
}

#[test]
fn an_unknown_mark_is_refused() {
    refused("touch started '%(FOO)s' ::: x", "there is no mark %(FOO)s");
    refused("touch started {foo} ::: x", "there is no mark {foo}");
    refused("touch started {gpu} ::: x", "give --gpu-list or --devices");
    refused("touch started '{{foo' {bar} ::: x", "there is no mark {bar}");
}

#[test]
fn a_mark_of_gnu_parallel_is_not_left_standing() {
    for mark in [
        "{:2}", "{:1:2}", "{:-x}", "{#my}", "{##my}", "{%.gz}", "{%%.gz}", "{/a/b}", "{//a/b}",
        "{^a}", "{^^a}", "{,a}", "{,,a}", "{1%.gz}", "{-1:2}", "{2/a/b}",
    ] {
        refused(&format!("touch started 'x{mark}' ::: x"), "as in --shell 'echo");
        real(&format!("ARGS 'x{{{mark}}}' {{}} ::: x"), &format!("[x{mark}][x]\n"));
    }
    refused("touch started '{= s/a/b/ =}' ::: x", "as in --shell 'echo");
    refused("touch started {= s/a/b/ =} ::: x", "as in --shell 'echo");
    refused("touch started {0#} ::: x", "printf %03d");
    refused("--plus touch started {2uniq} ::: x ::: y", "as in --shell 'echo");
    refused("--shell 'touch started{%.gz}' ::: x", "is computed with --plus only");
    refused("--plus --shell 'touch started{%.gz}' ::: x", "is not replaced in a script");
    refused("--plus touch started {%(} ::: x", "as in --shell 'echo");
    refused("--plus touch started {= x =} ::: x", "as in --shell 'echo");
    refused("touch started {slot} ::: x", "there is no mark {slot}");
    refused("touch started {x/.} ::: x", "there is no mark {x/.}");
}

#[test]
fn marks_may_compute() {
    real(
        "--plus ARGS {%.gz} {:1}x {1#a} {-1/a/b} {^a} {:-none} ::: a.gz",
        "[a][.gzx][.gz][b.gz][A.gz][a.gz]\n",
    );
    real("--plus --header : ARGS {n%.gz} {n} ::: n a.gz", "[a][a.gz]\n");
    real("--plus ARGS {{%.gz}} {} ::: a.gz", "[{%.gz}][a.gz]\n");
}

#[test]
fn an_input_that_is_not_there_is_refused() {
    refused("touch started x{2}y ::: x", "each job has one, which is {} or {1}");
    refused("touch started {-2} ::: x", "each job has one");
    refused("touch started {0} ::: x", "each job has one");
    refused("touch started {3} ::: x ::: y", "from {1} to {2}");
    refused("-n 2 touch started {3} ::: x y", "from {1} to {2}");
    refused("-n 0 touch started {} ::: x", "-n 0 puts none into the command");
    refused("touch started '[0-9]{4}' ::: x", "write {{4}}");
    refused("--shell 'touch started{1}' ::: x", "is not replaced in a script");
    real(
        "ARGS {{1}} {{%}} {{..}} '[0-9]{{4}}' '[0-9]{1,2}' {} ::: x",
        "[{1}][{%}][{..}][[0-9]{4}][[0-9]{1,2}][x]\n",
    );
    let place = Place::new();
    place.write("t.csv", "1,2\na,b\n");
    place.run_typed("--csv t.csv --dry-run -- prog {2} x{1}").check(0, "prog b xa\n");
}

#[test]
fn a_parameter_of_the_shell_is_not_replaced() {
    refused("touch started '${1}' ::: x", "write ${{1}}");
    refused("sh -c 'touch started ${1%.gz}' sh {} ::: x", "write ${{1%.gz}}");
    refused("touch started '${HOME}' ::: x", "there is no mark {HOME}");
    real("sh -c 'echo ${{1}} ${{1%.gz}}' sh {} ::: x.gz", "x.gz x\n");
    real("ARGS '${}' ::: x", "[$x]\n");
}

#[test]
fn one_of_several_inputs_stands_for_a_mark() {
    real("ARGS {2} x{1}y {-1} {-2} {} ::: a ::: 'b c'", "[b c][xay][b c][a][a][b c]\n");
    real("ARGS {1.} {1/} {1//} {1/.} {2..} ::: d/a.b ::: e.f.g", "[d/a][a.b][d][a][e]\n");
    real("ARGS {1} x{} ::: 'a b'", "[a b][xa b]\n");
}

#[test]
fn more_parts_of_a_path_stand_for_marks() {
    real(
        "ARGS {..} {...} {/..} {/...} {+/} {+.} {+..} {+...} ::: d/a.b.c.d",
        "[d/a.b][d/a][a.b][a][d][d][c.d][b.c.d]\n",
    );
}

#[test]
fn the_slot_counts_from_one_as_in_parallel() {
    real("-j1 ARGS {%} {worker} ::: a b", "[1][0]\n[1][0]\n");
}

#[test]
fn jobs_know_how_many_they_are() {
    real("-j1 ARGS {#}/{##} {} ::: a b", "[1/2][a]\n[2/2][b]\n");
    let place = Place::new();
    place.run_typed_on("-j1 -n2 echo {##} {}", "a\nb\nc\n").check(0, "2 a b\n2 c\n");
    place.write("jobs", "echo {#}/{##}\n\n--no-gpu echo {##}\n");
    place.run_typed("--job-file jobs").check(0, "1/2\n2\n");
    place.run_typed("--gpu-list 0 --job-file jobs").check(0, "1/2\n2\n");
}

#[test]
fn another_text_stands_for_the_input() {
    real("-I,, ARGS x,,y {} {.} ::: a.b", "[xa.by][{}][a]\n");
    real("-I % ARGS % ::: a", "[a]\n");
    real("-I {} ARGS {} ::: a", "[a]\n");
    real(
        "--er ,, --bnr @ --dnr ^ --bner = ARGS ,, @ ^ = {.} {/} ::: d/a.b",
        "[d/a][a.b][d][a][{.}][{/}]\n",
    );
    real(
        "-j1 --seqreplace ,, --slotreplace @ ARGS ,, @ {} {#} ::: a b",
        "[1][1][a][{#}]\n[2][1][b][{#}]\n",
    );
    refused("-n0 -I% touch started % ::: a", "-n 0 puts none");
}

#[test]
fn the_program_has_no_mark() {
    refused("'prog_%(GPU)s' x ::: x", "stands for the GPUs of a slot");
    refused("--gpu-list 0 -- 'prog_%(GPU)s' x ::: x", "the program's name");
    refused("-- {} x ::: touch", "the program's name '{}'");
    refused("-- A=1 sh{#} ::: x", "the program's name");
}

#[test]
fn doubled_marks_are_text() {
    real(
        "ARGS {{}} {{gpu}} %%'(GPU)s' {{#}} {{.}} {} ::: x",
        "[{}][{gpu}][%(GPU)s][{#}][{.}][x]\n",
    );
    real("ARGS {{foo}} {} ::: x", "[{foo}][x]\n");
    real("ARGS '{\"a\": 1}' '{a,b}' '{ }' '${' {} ::: x", "[{\"a\": 1}][{a,b}][{ }][${][x]\n");
}

#[test]
fn what_is_put_in_is_never_a_mark() {
    real(
        "ARGS {} {#} ::: '{#}' '{}' '%(GPU)s' '{{}}'",
        "[{#}][1]\n[{}][2]\n[%(GPU)s][3]\n[{{}}][4]\n",
    );
    real("--gpu-list 0 -- ARGS {} {gpu} ::: '{gpu}'", "[{gpu}][0]\n");
}

const HOSTILE: &str =
    "'$(touch pwned)' '`touch pwned`' 'a; touch pwned' 'a b\"c' \"it's\" '-n' '$1' '*'";
const HOSTILE_WORDS: &str =
    "[$(touch pwned)]\n[`touch pwned`]\n[a; touch pwned]\n[a b\"c]\n[it's]\n[-n]\n[$1]\n[*]\n";

#[test]
fn a_hostile_input_is_an_argument() {
    real(&format!("ARGS {{}} ::: {HOSTILE}"), HOSTILE_WORDS);
}

#[test]
fn a_hostile_input_of_a_script_is_a_parameter() {
    let place = Place::new();
    let line = format!("--shell -j1 -- 'printf \"[%s]\\n\" \"$1\"' ::: {HOSTILE}");
    place.run_typed(&line).check(0, HOSTILE_WORDS);
    assert!(!place.path("pwned").exists());
}

#[test]
fn a_script_keeps_its_braces() {
    real("--shell -j1 -- 'x=${1}; echo ${x}-${y:-} {#} {worker}' ::: a", "a- 1 0\n");
    real("--shell -- 'echo one; echo $1 | tr a-z A-Z' ::: a", "one\nA\n");
    real("--shell --gpu-list '0 1' -j1 -- 'echo {gpu} $1' ::: a", "0 1 a\n");
    let sets = "--shell --gpu-list '0 1' -j1 -- 'CUDA_VISIBLE_DEVICES={gpu} sh -c \"echo \\$CUDA_VISIBLE_DEVICES\"'";
    real(&format!("{sets} ::: a"), "0,1\n");
    real("--shell --gpu-list 5 -- 'gpu=3; echo ${gpu} ${#}' ::: a", "3 1\n");
}

#[test]
fn an_input_is_not_put_into_a_script() {
    refused("--shell 'touch started {}' ::: x", "is not replaced in a script");
    refused("--shell touch started ::: x", "--shell takes one word");
}

#[test]
fn columns_are_a_scripts_parameters() {
    let place = Place::new();
    place.write("t.csv", "a,b\n1,\"$(touch pwned)\"\n");
    let ran = place.run_typed("--csv t.csv --shell -- 'printf \"[%s]\" \"$@\"'");
    ran.check(0, "[1][$(touch pwned)]");
    assert!(!place.path("pwned").exists());
}

#[test]
fn a_dry_run_can_be_typed() {
    dry(
        "printf %s {} ::: 'a b' \"it's\" '' '$x'",
        "printf %s 'a b'\nprintf %s 'it'\\''s'\nprintf %s ''\nprintf %s '$x'\n",
    );
    dry("A=1 'B=x y' prog {} ::: z", "A=1 B='x y' prog z\n");
}

#[test]
fn an_empty_text_for_a_mark_does_not_hang() {
    for option in ["-I", "--extensionreplace", "--seqreplace", "--arg-sep", "--arg-file-sep"] {
        let ran = Place::new().run([option, "", "--", "echo", ":::", "a"]);
        ran.check_said(102, &["at least one character"]);
    }
}

/// A word that looks as if it had a mark, such as JSON, can be passed as the message says.
#[track_caller]
fn is_escaped(options: &str, word: &str, escaped: &str, said: &str) {
    let place = Place::new();
    let run = |word: &str| {
        let options = options.split_whitespace();
        place.run(options.chain(["--dry-run", "-j1", "--", "w", word, ":::", "a"]))
    };
    run(word).check_said(102, &[&format!("to pass the text itself, write {said}")]);
    let ran = run(escaped);
    assert!(ran.code == Some(0) && ran.stdout.contains(word), "{ran:?}");
}

#[test]
fn json_can_be_passed_as_the_message_says() {
    is_escaped("--warm", r#"{"kw": {}}"#, r#"{"kw": {{}}}"#, "{{}}");
    is_escaped("--warm", r#"{"a":{"b":{}},"c":[{}]}"#, r#"{"a":{"b":{{}}},"c":[{{}}]}"#, "{{}}");
    is_escaped("--warm", "x{#}", "x{{#}}", "{{#}}");
    is_escaped("--warm", "{attempt}", "{{attempt}}", "{{attempt}}");
    is_escaped("--warm", "{1/.}", "{{1/.}}", "{{1/.}}");
    is_escaped("-n 0", r#"{"kw": {}}"#, r#"{"kw": {{}}}"#, "{{}}");
    is_escaped("", "{gpu}", "{{gpu}}", "{{gpu}}");
    is_escaped("", "%(GPU)s", "%%(GPU)s", "%%(GPU)s");
}
