use super::*;
use crate::device::inventory::DriverAnswer;

#[track_caller]
fn check(yaml: &str, variable: Option<&str>, expected: &str) {
    let cfg = CfgNode::from_yaml_str(yaml).unwrap();
    let devices =
        Devices::from_cfg_on(&cfg, 3, &Machine::new(variable, &|| DriverAnswer::NotBuilt));
    let devices = devices.map_or_else(|error| format!("{error:#}"), |it| it.to_string());
    assert_eq!(devices, expected, "{yaml}");
}

#[test]
fn each_row_of_the_table() {
    check("{use_gpu: false}", None, "cpu*3");
    check("{use_gpu: false, gpu_list: 0 1}", None, "cpu*3");
    check("{use_gpu: true, gpu_list: 0 1}", None, "cuda:0,cuda:1,cuda:0");
    check("{gpu_list: 0 1}", None, "cuda:0,cuda:1,cuda:0");
    check("{use_gpu: true}", None, "cuda:0*3");
    check("{}", None, "cpu*3");
}

#[test]
fn a_key_that_nearly_matches_is_an_error_that_names_the_right_one() {
    for key in ["USE_GPU", "useGpu", "use-gpu", "UseGPU", "usegpu"] {
        let text = format!("the configuration has the key {key:?}; write use_gpu");
        check(&format!("{{{key}: true}}"), None, &text);
        check(&format!("{{use_gpu: true, {key}: true}}"), None, &text);
    }
    for key in ["GPU_LIST", "gpuList", "GPUs_list"] {
        let text = format!("the configuration has the key {key:?}; write gpu_list");
        let expected = if key == "GPUs_list" { "cpu*3" } else { &text };
        check(&format!("{{{key}: 0 1}}"), None, expected);
    }
}

#[test]
fn null_is_not_given() {
    check("{use_gpu: null, gpu_list: null}", None, "cpu*3");
    check("{use_gpu: null, gpu_list: 1}", None, "cuda:1*3");
    check("{use_gpu: true, gpu_list: null}", None, "cuda:0*3");
}

#[test]
fn a_list_that_is_not_used_is_not_read() {
    check("{use_gpu: false, gpu_list: 3-0}", Some(""), "cpu*3");
    check("{use_gpu: false, gpu_list: {a: 1}}", Some(""), "cpu*3");
}

#[test]
fn the_list_counts_what_is_visible() {
    check("{gpu_list: 1 GPU-8932}", Some("7,6,GPU-8932f937"), "cuda:1,cuda:2,cuda:1");
    check("{gpu_list: all}", Some("7,6"), "cuda:0,cuda:1,cuda:0");
    check("{use_gpu: true, gpu_list: [1, all]}", Some("7,6"), "cuda:1,cuda:0,cuda:1");
    let hidden = r#"GPU 0 is not visible: CUDA_VISIBLE_DEVICES is "", which shows none"#;
    check("{use_gpu: true}", Some(""), hidden);
}

#[test]
fn the_driver_is_asked_for_a_uuid_that_the_variable_does_not_name() {
    let text = "CUDA_VISIBLE_DEVICES does not tell which GPU GPU-8932 is, and asking the driver \
                    needs a build with the feature `nvml`; put its UUID there, as nvidia-smi -L \
                    shows it";
    check("{gpu_list: GPU-8932}", None, text);
    check("{gpu_list: GPU-8932}", Some("0,1"), text);
}

#[test]
fn errors_name_the_key() {
    check("{use_gpu: 'yes'}", None, r#"use_gpu: invalid type: string "yes", expected a boolean"#);
    check("{gpu_list: 3-0}", None, r#"gpu_list: the range "3-0" runs backwards; write 0-3"#);
    check(
        "{gpu_list: true}",
        None,
        r#"gpu_list: not a list of GPUs; write a text such as "0 1", an id such as 0, or a list of both"#,
    );
}

#[test]
fn no_gpu_and_no_worker_are_errors() {
    let none = r#"the list of GPUs "" has none; name at least one, as in 0 (99 is a void entry), or use the CPU"#;
    check("{gpu_list: ''}", None, none);
    check("{gpu_list: 99 99}", None, &none.replace(r#""" has"#, r#""99,99" has"#));
    for yaml in ["{}", "{gpu_list: 0}", "{use_gpu: false}"] {
        let cfg = CfgNode::from_yaml_str(yaml).unwrap();
        let machine = Machine::new(None, &|| DriverAnswer::NotBuilt);
        let error = Devices::from_cfg_on(&cfg, 0, &machine).unwrap_err();
        assert_eq!(error.to_string(), "devices for no worker; at least one is needed");
    }
}
