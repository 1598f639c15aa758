//! One conclusion in the words of the library, the program and the Python package.

use super::*;
use crate::RunReport;
use crate::advice::{Advice, PlaceKind};
use crate::conclusion::{StagePlace, WindowGain};

const P: Percent = Percent(0.5);

/// A run that had been begun before and was cancelled, with advice of all kinds.
fn conclusion() -> Conclusion {
    let stage = StagePlace { name: "the producers".to_owned(), number: 2, all: 3 };
    Conclusion {
        earlier: Some((20, 72)),
        ended: Some(Ending::Cancelled),
        lasted: 10.0,
        stage: Some(stage),
        team: Team { all: 4, lost: 1, place: TeamPlace::Threads },
        limit: Some(Limit::Producers { busy: Percent(0.97), rebuilding: Percent(0.1) }),
        second: Some(BusyPart { part: PartKind::Consumer, share: Percent(0.9), stage: None }),
        advice: vec![
            Advice::MoreProducers { to: Some(8), places: PlaceKind::Cpus },
            Advice::AutoBatch,
            Advice::LargerBatch { items: 64 },
        ],
        head: Some(HeadCost {
            waited: 4.0,
            worst: Some((17, 1.5)),
            lost: 3.0,
            share: Percent(0.08),
            advice: vec![Advice::Window { items: 512 }, Advice::CompletionOrder, Advice::Speculate],
        }),
        gain: Some(WindowGain { window: 512, lasted: 8.0 }),
        running: 0,
        ..Conclusion::default()
    }
}

#[test]
fn a_conclusion_has_the_words_of_each_vocabulary() {
    let library = "An earlier run had already done 20 of 72 items. Until it was cancelled after 10.0 s, in \"the \
        producers\" (stage 2 of 3) the producers limited the run: the 3 remaining producers worked 97 % of the time (and \
        rebuilt states for 10 %), closely followed by the consumer (90 %); use more producers (the source and the \
        consumer keep up with `devices(8)`) or faster devices, let the run choose the size of batches \
        (`batch(Batch::auto())`), or try larger batches (`batch(Batch::up_to(64))`); 1 of 4 producers was lost during \
        the run. Results waited 4.00 s for the head of the line, 1.50 s of it for item 17, which cost 3.00 s of producer \
        time (8 %); use `window(512)` if memory has room for its results, take results as they come \
        (`UnorderedRunner`), or let a second producer copy items that are slow by chance (`speculate()`). With \
        `window(512)` this run would have taken 8.00 s, not 10.0 s.";
    let program = "An earlier run had already done 20 of 72 jobs. Until it was cancelled after 10.0 s, in \"the \
        producers\" (stage 2 of 3) the jobs limited the run: the 3 remaining slots worked 97 % of the time (and rebuilt \
        states for 10 %), closely followed by writing the outputs (90 %); use more slots (the input and the output keep \
        up with `-j 8`) or faster devices, let the run choose the size of lists (`--batch auto`), or try larger lists \
        (`--batch 64`); 1 of 4 slots was lost during the run. Results waited 4.00 s for the head of the line, 1.50 s of \
        it for job 17, which cost 3.00 s of slot time (8 %); use `--window 512` if memory has room for its results, or \
        print outputs as jobs end (`--no-keep-order`). With `--window 512` this run would have taken 8.00 s, not 10.0 s.";
    let package = "An earlier run had already done 20 of 72 items. Until it was cancelled after 10.0 s, in \"the \
        producers\" (stage 2 of 3) the workers limited the run: the 3 remaining workers worked 97 % of the time (and \
        rebuilt states for 10 %), closely followed by the caller (90 %); use more workers (the source and the caller keep \
        up with `workers=8`) or faster devices, let the run choose the size of lists (`batch=\"auto\"`), or try larger \
        lists (`batch=64`); 1 of 4 workers was lost during the run. Results waited 4.00 s for the head of the line, 1.50 \
        s of it for item 17, which cost 3.00 s of worker time (8 %); use `window=512` if memory has room for its \
        results, or take results as they come (`order=\"completion\"`). With `window=512` this run would have taken \
        8.00 s, not 10.0 s.";
    let said = [Vocabulary::Items, Vocabulary::Jobs, Vocabulary::Workers];
    let mut report = RunReport::default();
    report.conclude(conclusion());
    for (vocabulary, expected) in said.into_iter().zip([library, program, package]) {
        report.speak(vocabulary);
        assert_eq!(report.conclusion, expected);
        let read = RunReport::from_json(&report.to_json()).unwrap();
        assert_eq!(read, report, "its data can be read again");
    }
}

#[test]
fn advice_in_json_has_the_names_of_the_vocabulary() {
    for (vocabulary, expected) in [
        (
            Vocabulary::Items,
            r#"[["devices",8],["auto_batch",null],["batch",64],["window",512],["completion_order",null],["speculate",null]]"#,
        ),
        (
            Vocabulary::Jobs,
            r#"[["-j",8],["--batch","auto"],["--batch",64],["--window",500],["--no-keep-order",null]]"#,
        ),
        (
            Vocabulary::Workers,
            r#"[["workers",8],["batch","auto"],["batch",64],["window",512],["order","completion"]]"#,
        ),
    ] {
        let running = if vocabulary == Vocabulary::Jobs { 12 } else { 0 };
        let settings = settings(&Conclusion { running, ..conclusion() }, vocabulary);
        let pairs: Vec<_> = settings.into_iter().map(|it| (it.setting, it.value)).collect();
        assert_eq!(serde_json::to_string(&pairs).unwrap(), expected);
    }
}

#[test]
fn no_vocabulary_has_words_of_another() {
    let head = || HeadCost { advice: vec![Advice::CompletionOrder], ..HeadCost::default() };
    let limits = [
        Limit::NothingRead { unread: 3 },
        Limit::NothingToDo,
        Limit::TooShort { items: 3 },
        Limit::Source { busy: P, starved: P },
        Limit::Recycling { busy: P, rebuilding: P, states: 2 },
        Limit::Consumer { busy: P, full: P },
        Limit::Caller { form: CallerForm::Outputs, busy: P },
        Limit::Window { full: P, held_up: P },
        Limit::Backoff { waiting: P },
        Limit::Head(head()),
        Limit::Uneven { producer: 1, place: "cpu".to_owned(), busy: P, mean: P },
        Limit::MixedCalls { busy: P, rebuilding: P },
        Limit::Splits { split: 2, batches: 2, calls: 8, error: "bad".to_owned() },
        Limit::TooFew { items: 3, calls: 2, busy: P },
        Limit::StartUp { took: 1.0 },
        Limit::Loading { share: P },
    ];
    let advice = vec![
        Advice::LessInSourceMoreInWork,
        Advice::LessInConsumer,
        Advice::WhyItemsFail { share: Some(P) },
        Advice::FasterHook { cores: 8 },
        Advice::WhyStatesAreLost,
        Advice::FasterInit,
        Advice::WindowMemory { bytes: 1 << 30, memory: Some(1 << 34) },
        Advice::LargerWindow,
        Advice::ShorterBackoff,
        Advice::LongItemsFirst,
        Advice::MoreItems,
        Advice::OnePool,
        Advice::BetterBatches,
        Advice::RecycleAfter { items: 80 },
    ];
    for (vocabulary, others) in [
        (Vocabulary::Items, ["job", "slot", "worker", "--", "retry_delay"]),
        (Vocabulary::Jobs, ["item", "producer", "consumer", "hook", "pool"]),
        (Vocabulary::Workers, ["job", "producer", "consumer", "hook", "--"]),
    ] {
        for limit in limits.clone() {
            let (limit, advice) = (Some(limit), advice.clone());
            let text = text(&Conclusion { limit, advice, ..Conclusion::default() }, vocabulary);
            let has = others.iter().find(|it| text.to_lowercase().contains(**it));
            assert_eq!(has, None, "{text}");
        }
    }
}

/// The names come from the types: the error of an unknown one lists all.
#[test]
fn every_limit_and_advice_has_its_words() {
    let names = |error: serde_json::Error| {
        let error = error.to_string();
        error.split('`').skip(3).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let limits = names(serde_json::from_str::<Limit>(r#"{"kind": "?"}"#).unwrap_err());
    let advice = names(serde_json::from_str::<Advice>(r#"{"change": "?"}"#).unwrap_err());
    let bottlenecks = names(serde_json::from_str::<Bottleneck>(r#""?""#).unwrap_err());
    assert!(limits.len() > 25 && advice.len() > 35 && bottlenecks.len() > 14, "{limits:?}");
    let known =
        |section: &str, name: &str| text_of(&format!("{section}.{name}"), Vocabulary::Items);
    for name in limits {
        assert!(known("said", &name).or(known("limit", &name)).is_some(), "{name}");
    }
    advice.iter().for_each(|name| assert!(known("advice", name).is_some(), "{name}"));
    bottlenecks.iter().for_each(|name| assert!(known("bottleneck", name).is_some(), "{name}"));
}

/// A kind of limit that a later version of gangline may have.
#[test]
fn an_unknown_kind_of_limit_leaves_the_sentence() {
    let json = r#"{"conclusion": "The moon limited the run.", "findings": {"limit": {"kind": "moon", "phase": 1}}}"#;
    let mut report = RunReport::from_json(json).unwrap();
    report.speak(Vocabulary::Jobs);
    assert_eq!(report.conclusion, "The moon limited the run.");
}
