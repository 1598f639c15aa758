use super::*;

fn found(accelerator: Accelerator) -> Found {
    match accelerator {
        Accelerator::Cuda => Found::Count(3),
        Accelerator::Metal => Found::Count(0),
    }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let places = match parse_places(text, &found) {
        Ok(Parsed { places, fallbacks }) => {
            let places = places.iter().map(Place::to_string);
            places.chain(fallbacks).collect::<Vec<_>>().join(" ")
        }
        Err(error) => error.to_string(),
    };
    assert_eq!(places, expected, "{text:?}");
}

#[test]
fn all_is_what_the_machine_has() {
    check("cuda:all", "cuda:0 cuda:1 cuda:2");
    check("cuda:all*2", "cuda:0 cuda:0 cuda:1 cuda:1 cuda:2 cuda:2");
    check("cuda : all + cpu", "cuda:0+cuda:1+cuda:2+cpu");
    check("cuda:all,cuda:0", "cuda:0 cuda:1 cuda:2 cuda:0");
}

#[test]
fn names_of_other_libraries_are_answered_with_ours() {
    let all = "cuda:all, or cuda:all|cpu to allow the CPU";
    for (text, instead) in [
        ("auto", all),
        ("all", all),
        ("gpu", "cuda:0 or metal:0"),
        ("GPU:2", "cuda:2 or metal:2"),
        ("mps", "metal:0"),
        ("CPU", "cpu"),
        ("Cuda:1", "cuda:1"),
    ] {
        check(text, &format!("unknown device {text:?}; write {instead}"));
        check(&format!("cpu,{text}*2"), &format!("unknown device {text:?}; write {instead}"));
    }
    check("tpu", "unknown device \"tpu\"; known are cpu, cuda:N and metal:N, in lower case");
}

#[test]
fn control_characters_in_a_kind_in_capitals_do_not_reach_a_terminal() {
    check("CUDA:\u{1b}[2J", r#"unknown device "CUDA:\u{1b}[2J"; write cuda:\u{1b}[2j"#);
}

#[test]
fn all_of_nothing_is_an_error() {
    check("cpu,metal:all", "metal:all stands for no device: this machine has no metal device");
}

#[test]
fn the_first_alternative_that_is_there_is_used() {
    check("cuda:2*2|cpu", "cuda:2 cuda:2");
    let no_metal = "metal:0 does not exist; this machine has no metal device";
    check("metal|cpu*2", &format!("cpu cpu \"metal|cpu*2\" came to cpu*2, since {no_metal}"));
    check(
        "cpu, cuda:1-3 | metal:all | cuda:1 ,cpu",
        "cpu cuda:1 cpu \"cuda:1-3 | metal:all | cuda:1\" came to cuda:1, since cuda:3 does not \
             exist; this machine has cuda:0 to cuda:2; metal:all stands for no device: this machine \
             has no metal device",
    );
}

#[test]
fn what_is_used_in_place_of_the_same_is_told_once() {
    let parsed = parse_places("metal|cpu,metal|cpu,metal|cuda", &found).unwrap();
    assert_eq!((parsed.places.len(), parsed.fallbacks.len()), (3, 2));
    let text = (0..1_000).map(|n| format!("metal:{n}|cpu")).collect::<Vec<_>>().join(",");
    assert_eq!(parse_places(&text, &found).unwrap().fallbacks.len(), MAX_FALLBACKS);
}

#[test]
fn alternatives_are_not_without_number() {
    let read = |count| parse_places(&vec!["metal"; count].join("|"), &found).unwrap_err();
    assert!(matches!(read(MAX_ALTERNATIVES), DeviceError::NothingLeft { .. }));
    let text = read(1_000_000).to_string();
    assert!(text.contains("names more than 16 alternatives") && text.len() < 300, "{text}");
}

#[test]
fn a_machine_is_asked_once_for_each_kind() {
    let asked = std::cell::Cell::new(0);
    let ask = |accelerator| {
        asked.set(asked.get() + 1);
        found(accelerator)
    };
    parse_places(&["metal|cuda:7|cpu"; 1_000].join(","), &ask).unwrap();
    assert_eq!(asked.get(), 2);
}

#[test]
fn alternatives_none_of_which_is_there_are_an_error() {
    let error = parse_places("cpu,metal|cuda:3", &found).unwrap_err();
    let text = "nothing in \"metal|cuda:3\" can be used: metal:0 does not exist; this machine has no \
                    metal device; cuda:3 does not exist; this machine has cuda:0 to cuda:2";
    assert_eq!(format!("{error:?}"), text);
}

#[test]
fn a_mistake_is_one_also_in_an_alternative_that_is_not_taken() {
    check("cpu|cuda:0,1", "\"1\" does not say which kind of device it is; write cpu|cuda:0,cuda:1");
    check("cpu|0", "\"0\" does not say which kind of device it is; write cpu|cuda:0");
    let behind_an_absence = ["metal:all*0|cpu", "metal:all+gpu|cpu", "metal*70000|cpu"];
    let not_taken =
        ["cpu|", "cpu|gpu", "cpu|cpu*0", "cpu|cuda:2-1", "cpu|cpu+cpu", "cpu|cuda*70000"];
    for text in ["|cpu", "cuda||cpu"].into_iter().chain(behind_an_absence).chain(not_taken) {
        let error = parse_places(text, &found).unwrap_err();
        assert!(!error.is_absence(), "{text}: {error}");
        assert!(!matches!(error, DeviceError::NothingLeft { .. }), "{text}: {error}");
    }
}

#[test]
fn an_absurd_machine_is_bounded() {
    let found = |_| Found::Count(usize::MAX);
    assert!(matches!(
        parse_places("cuda:all", &found),
        Err(DeviceError::TooManyPlaces { least: usize::MAX, .. })
    ));
    assert!(matches!(
        parse_places("cuda:all+cpu", &found),
        Err(DeviceError::TooManyInPlace { .. })
    ));
}

#[test]
fn long_texts_are_clipped_in_errors() {
    let error = parse_places(&"é".repeat(1_000_000), &found).unwrap_err().to_string();
    assert!(error.len() < 300, "{error}");
    let error = parse_places(&"1,".repeat(1_000_000), &found).unwrap_err().to_string();
    assert!(error.len() < 300, "{error}");
}
