//! The files in docs/deploy, as far as they can be tried without what reads them.

use std::process::Command;

use serde_json::Value;

use crate::security::Secured;
use crate::suite::tests;

const UNIT: &str = include_str!("../../../../docs/deploy/gangline-worker.service");
const SSH: &str = include_str!("../../../../docs/deploy/ssh.sh");
const KUBERNETES: &str = include_str!("../../../../docs/deploy/kubernetes.yaml");

tests![
    systemd_accepts_the_unit,
    keda_finds_the_number_of_runs,
    the_files_name_variables_that_workers_read,
];

fn systemd_accepts_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("gangline-worker.service");
    let program = std::env::current_exe().unwrap();
    assert!(UNIT.contains("ExecStart=/opt/gangline/app\n"));
    let text = UNIT.replace("/opt/gangline/app", program.to_str().unwrap());
    std::fs::write(&unit, text).unwrap();
    let verify = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(unit).output();
    // Not every Linux has it.
    let Ok(verified) = verify else { return };
    let said = String::from_utf8_lossy(&verified.stderr);
    let about_it = said.lines().filter(|line| line.contains("gangline-worker"));
    assert_eq!(about_it.collect::<Vec<_>>(), [""; 0]);
}

/// As its scaler for JetStream looks for it.
fn keda_finds_the_number_of_runs() {
    let documents: Vec<Value> =
        KUBERNETES.split("\n---\n").map(|text| serde_saphyr::from_str(text).unwrap()).collect();
    let [deployment, scaled] = &documents[..] else { panic!("{documents:?}") };
    assert_eq!(scaled["spec"]["scaleTargetRef"]["name"], deployment["metadata"]["name"]);
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
    let trigger = &scaled["spec"]["triggers"][0];
    assert_eq!(trigger["type"], "nats-jetstream");
    let wanted = |name| trigger["metadata"][name].as_str().unwrap();
    let secured = Secured::start();
    let _worker = secured.worker("worker:obeys");
    let mut pool = secured.builder().build().unwrap();
    let pending = || {
        let path = format!("/jsz?acc={}&consumers=true&config=true", wanted("account"));
        let status = secured.broker.status(&path);
        let named = |list: &Value, name: &str| -> Value {
            list.as_array().unwrap().iter().find(|it| it["name"] == name).unwrap().clone()
        };
        let account = named(&status["account_details"], wanted("account"));
        let stream = named(&account["stream_detail"], wanted("stream"));
        named(&stream["consumer_detail"], wanted("consumer"))["num_pending"].as_u64()
    };
    assert_eq!(pending(), Some(1));
    pool.close().unwrap();
    assert_eq!(pending(), Some(0));
}

fn the_files_name_variables_that_workers_read() {
    let page = include_str!("../../../../docs/cluster.md");
    for text in [UNIT, SSH, KUBERNETES] {
        let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
        let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("GANGLINE_"));
        let words: Vec<_> = words.collect();
        assert!(words.contains(&"GANGLINE_NATS"), "{text}");
        for word in words {
            assert!(page.contains(&format!("| `{word}` |")), "{word}");
        }
    }
}
