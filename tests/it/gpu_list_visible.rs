//! Lists of GPUs in a process that sees only some of the machine's.

use crate::gpu_list::list;

#[track_caller]
fn sees(gpus: &str, variable: Option<&str>, expected: &str) {
    let visible = list(gpus).visible_in(variable);
    let visible = visible.map_or_else(|error| error.to_string(), |gpus| gpus.to_string());
    assert_eq!(visible, expected, "{gpus:?} under {variable:?}");
}

#[test]
fn ids_count_what_is_visible() {
    sees("0-3", Some("4,5,6,7"), "0-3");
    sees("3,0,0", Some(" 4, 5 ,6,7"), "3,0,0");
    sees("7", None, "7");
    sees("1", Some("0,GPU-8932f937"), "1");
    sees(
        "4",
        Some("4,5,6,7"),
        r#"GPU 4 is not visible: CUDA_VISIBLE_DEVICES is "4,5,6,7", so ids go from 0 to 3"#,
    );
    sees(
        "0 1",
        Some("3"),
        r#"GPU 1 is not visible: CUDA_VISIBLE_DEVICES is "3", so the only id is 0"#,
    );
}

#[track_caller]
fn is_on_machine(gpus: &str, variable: Option<&str>, expected: &str) {
    let outside = list(gpus).on_machine_in(variable);
    let outside = outside.map_or_else(|error| error.to_string(), |gpus| format!("{gpus:#}"));
    assert_eq!(outside, expected, "{gpus:?} under {variable:?}");
}

#[test]
fn an_id_stands_for_what_the_variable_has_there() {
    is_on_machine("0", Some("4,5,6,7"), "4");
    is_on_machine("0-2 99 0", Some("4,5,6,7"), "4,5,6,99,4");
    is_on_machine("1 0", Some("3,GPU-8932f937"), "GPU-8932f937,3");
    is_on_machine("GPU-8932 1", Some("3,2"), "GPU-8932,2");
    is_on_machine("7 8", None, "7,8");
    is_on_machine(
        "4",
        Some("4,5"),
        r#"GPU 4 is not visible: CUDA_VISIBLE_DEVICES is "4,5", so ids go from 0 to 1"#,
    );
    assert_eq!(list("99").on_machine().unwrap(), list("99"), "whatever this process may see");
}

/// As CUDA reads the variable: `0,2,-1,1` shows two.
#[test]
fn the_variable_ends_at_what_is_no_gpu() {
    let hidden = |index, variable: &str, rest| {
        format!("GPU {index} is not visible: CUDA_VISIBLE_DEVICES is {variable:?}, {rest}")
    };
    let check = |index: usize, variable: &str, rest| {
        sees(&index.to_string(), Some(variable), &hidden(index, variable, rest));
    };
    sees("0-1", Some("0,2,-1,1"), "0-1");
    sees("0-1", Some("0a,1b"), "0-1");
    check(2, "0,2,-1,1", "so ids go from 0 to 1");
    check(1, "0,GPU-,1", "so the only id is 0");
    check(1, "0,99999999999999999999", "so the only id is 0");
    for nothing in ["", " ", "-1", "NoDevFiles", "none", ",0", "0,0", "GPU-1,GPU-1"] {
        check(0, nothing, "which shows none");
    }
}

#[test]
fn void_entries_are_always_visible() {
    sees("0 99", Some("4"), "0,99");
    sees("99", Some(""), "99");
    // Whatever this process may see.
    assert_eq!(list("99 99").visible().unwrap(), list("99 99"));
}

#[test]
fn a_uuid_is_found_in_the_variable() {
    let variable = "3,GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,MIG-4f1c,\
                    MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/12";
    let check = |gpus: &str, expected: &str| sees(gpus, Some(variable), expected);
    check("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "1");
    check("GPU-8932F937", "1");
    check("MIG-4f1c2d3e-d72c-4106-c12f-20bd9faed9f6", "2");
    check("MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/12", "3");
    check("0 GPU-8932 1 GPU-8932", "0-1,1,1");
}

#[test]
fn a_uuid_that_the_variable_does_not_name_is_an_error() {
    let instance = "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/1";
    let unnamed = |uuid: &str, variable: &str| {
        let error = format!(
            "{uuid} has no id: CUDA_VISIBLE_DEVICES is {variable:?}, which does not name it"
        );
        sees(uuid, Some(variable), &error);
    };
    unnamed("GPU-8932f937", "0,1");
    unnamed("GPU-8932f937", "GPU-8932f938");
    unnamed("GPU-4f1c", "MIG-4f1c");
    unnamed("GPU-8932f937", "-1,GPU-8932f937");
    let visible = list(instance).visible_in(Some(&format!("{instance}2")));
    assert!(visible.unwrap_err().to_string().starts_with(&format!("{instance} has no id: ")));
    sees(
        "GPU-8932f937",
        None,
        "GPU-8932f937 has no id: CUDA_VISIBLE_DEVICES is not set, which would have to name it",
    );
}

#[test]
fn a_uuid_that_is_too_short_is_an_error() {
    sees(
        "GPU-8932",
        Some("GPU-8932f937,0,GPU-8932f938"),
        "GPU-8932 may be GPU 0 or GPU 2 of CUDA_VISIBLE_DEVICES; write more of its digits",
    );
    sees("GPU-8932", Some("GPU-8932f937,GPU-8932"), "1");
}
