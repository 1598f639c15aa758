//! Accounts as `nsc` makes them: an operator, signed tokens, and files of credentials.

use std::path::PathBuf;

use data_encoding::BASE64URL_NOPAD;
use gangline::OrderedRunner;
use gangline_nats::ClusterBuilder;
use nkeys::KeyPair;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::broker::Broker;
use crate::chores::{CHORES, Chore, Chores, squared, squares};
use crate::suite::tests;
use crate::support::{Place, Running};

const CONFIG: &str = include_str!("../../../../docs/deploy/nats-server.conf");

tests![
    a_file_of_credentials_is_enough,
    credentials_of_another_account_are_a_wrong_setup,
    a_file_that_holds_no_credentials_is_an_error,
];

/// A broker that trusts an operator, and two of its users.
struct Trusting {
    broker: Broker,
    place: Place,
    account: KeyPair,
}

impl Trusting {
    fn start() -> Self {
        let place = Place::new();
        let (operator, account) = (KeyPair::new_operator(), KeyPair::new_account());
        let limits = |stored: i32| {
            json!({
                "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
                "conn": -1, "leaf": -1, "mem_storage": stored, "disk_storage": stored, "streams": stored,
                "consumer": stored,
            })
        };
        let root = token(&operator, &operator, json!({ "type": "operator", "version": 2 }));
        // JetStream asks for an account of the broker itself, which has none.
        let system = KeyPair::new_account();
        let preloaded = [(&account, -1), (&system, 0)].map(|(it, stored)| {
            let claims = json!({ "type": "account", "version": 2, "limits": limits(stored) });
            format!("  {}: {}\n", it.public_key(), token(&operator, it, claims))
        });
        let config = format!(
            "operator: {root}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{\n{}}}\n",
            system.public_key(),
            preloaded.concat(),
        );
        let config = place.write("nats-server.conf", config);
        let broker = Broker::with_options(&["-c", config.to_str().unwrap()]);
        Trusting { broker, place, account }
    }

    /// The file with the credentials of a new user.
    fn credentials(&self, name: &str, account: &KeyPair, mut claims: Value) -> PathBuf {
        let user = KeyPair::new_user();
        let all = claims.as_object_mut().unwrap();
        for limit in ["subs", "data", "payload"] {
            all.insert(limit.to_owned(), json!(-1));
        }
        all.insert("type".to_owned(), json!("user"));
        all.insert("version".to_owned(), json!(2));
        let (token, seed) = (token(account, &user, claims), user.seed().unwrap());
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        self.place.write(name, text)
    }

    fn coordinator(&self) -> PathBuf {
        self.credentials("coordinator.creds", &self.account, json!({}))
    }

    /// With the permissions of the worker in docs/deploy.
    fn worker_of(&self, account: &KeyPair) -> PathBuf {
        let permissions = json!({
            "pub": { "allow": allowed("publish") },
            "sub": { "allow": allowed("subscribe") },
        });
        self.credentials("worker.creds", account, permissions)
    }

    fn start_worker(&self, credentials: &PathBuf) -> Running {
        let url = self.broker.url();
        let mut command = self.place.gangline(["worker", "--nats", &url, "--devices", "cpu", "--"]);
        command.arg(std::env::current_exe().unwrap());
        self.place.start(command.env("GANGLINE_NATS_CREDENTIALS", credentials))
    }
}

/// The claims of a subject, signed by an issuer.
fn token(issuer: &KeyPair, subject: &KeyPair, claims: Value) -> String {
    let encoded = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let head = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let (iss, sub) = (issuer.public_key(), subject.public_key());
    let body = json!({ "jti": sub, "iat": 1_700_000_000, "iss": iss, "name": sub, "sub": sub, "nats": claims });
    let text = format!("{}.{}", encoded(&head), encoded(&body));
    let signature = BASE64URL_NOPAD.encode(&issuer.sign(text.as_bytes()).unwrap());
    format!("{text}.{signature}")
}

/// The subjects of a worker in the configuration of the page.
fn allowed(section: &str) -> Vec<&'static str> {
    let section = CONFIG.split_once(&format!("{section} {{")).unwrap().1.split_once(']').unwrap().0;
    let lines = section.lines().filter(|line| !line.trim_start().starts_with('#'));
    let subjects: Vec<_> = lines.filter_map(|line| line.split('"').nth(1)).collect();
    assert!(!subjects.is_empty());
    subjects
}

fn a_file_of_credentials_is_enough() {
    let trusting = Trusting::start();
    let running = trusting.start_worker(&trusting.worker_of(&trusting.account));
    let nats = trusting.broker.nats().credentials(trusting.coordinator());
    let builder = OrderedRunner::builder(Chores::new()).retries(1).cluster(&CHORES, nats);
    let mut pool = builder.build().unwrap();
    let mut items = squares(0..50);
    items.push(Chore::FailOnce(trusting.place.path("failed")));
    assert_eq!(pool.run(items).unwrap()[..50], squared(0..50));
    let mut command = trusting.place.gangline(["workers", "--nats", &trusting.broker.url()]);
    command.env("GANGLINE_NATS_CREDENTIALS", trusting.place.path("coordinator.creds"));
    let listed = trusting.place.start(&mut command).ran();
    assert_eq!((listed.code, listed.stdout.lines().count()), (Some(0), 2), "{listed:?}");
    running.send(Signal::TERM);
    running.ran().check(0, "");
    pool.close().unwrap();
    let log = trusting.broker.log();
    assert!(!log.contains("Violation"), "{log}");
}

fn credentials_of_another_account_are_a_wrong_setup() {
    let trusting = Trusting::start();
    let stranger = trusting.worker_of(&KeyPair::new_account());
    trusting.start_worker(&stranger).ran().check_said(78, &["authorization", "its setup is wrong"]);
    let nats = trusting.broker.nats().credentials(stranger);
    let built = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats).build();
    let text = format!("{:#}", built.map(|_| ()).unwrap_err());
    assert!(text.contains("authorization"), "{text}");
}

fn a_file_that_holds_no_credentials_is_an_error() {
    let trusting = Trusting::start();
    let empty = trusting.place.write("empty.creds", "nothing\n");
    trusting.start_worker(&empty).ran().check_said(78, &["no connection to the broker"]);
    let nats = trusting.broker.nats().credentials(&empty);
    let built = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats).build();
    let text = format!("{:#}", built.map(|_| ()).unwrap_err());
    assert!(text.starts_with("no connection to the broker at nats://127.0.0.1"), "{text}");
}
