//! The server of a test, and its worker.

use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::caller::{Caller, Reply, request};
use crate::support::{Place, Ran, Running, wait_until};

/// A worker in Python. An input that is an object selects what it does.
const WORKER: &str = r#"
import json, os, sys, time

def say(message):
    print(json.dumps(message), flush=True)

def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.005)

takes_lists = os.environ.get("LISTS", "1") == "1"
json.loads(sys.stdin.readline())
if os.path.exists("broken"):
    sys.exit(1)
if os.path.exists("slow"):
    open("loading", "w").close()
    while os.path.exists("slow"):
        time.sleep(0.005)
if "LOAD" in os.environ:
    open("loading", "w").close()
    wait_for(os.environ["LOAD"])
say({"gangline": 2, "batch": takes_lists})
for line in sys.stdin:
    message = json.loads(line)
    items = message["items"] if takes_lists else [message]
    with open("seen", "a") as seen:
        seen.write(json.dumps([item["input"] for item in items])[:200] + "\n")
    for item in items:
        number, x = item["item"], item["input"]
        what = next(iter(x)) if isinstance(x, dict) and x else None
        if what == "wait":
            open("waiting", "w").close()
            wait_for(x["wait"])
        elif what == "crash":
            os._exit(3)
        elif what == "error":
            print("Traceback: aside", file=sys.stderr, flush=True)
            say({"item": number, "error": x["error"]})
            continue
        elif what == "bad":
            print("aside", file=sys.stderr, flush=True)
            say({"item": number, "error": x["bad"], "kind": "input"})
            continue
        elif what == "nan":
            x = float("nan")
        elif what == "pid":
            say({"item": number, "output": os.getpid()})
            continue
        elif what == "bytes":
            x = "x" * x["bytes"]
        say({"item": number, "output": x * x if isinstance(x, (int, float)) else x})
"#;

pub(crate) struct Server {
    pub(crate) place: Place,
    pub(crate) running: Running,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts a server whose workers are ready.
    #[track_caller]
    pub(crate) fn start(options: &str) -> Server {
        let server = Server::loading(options, &[]);
        server.wait_until_ready();
        server
    }

    #[track_caller]
    pub(crate) fn wait_until_ready(&self) {
        wait_until("it is ready", || self.get("/health/ready").status == 200);
    }

    /// Starts a server, with these variables for its workers.
    #[track_caller]
    pub(crate) fn loading(options: &str, variables: &[(&str, &str)]) -> Server {
        Server::of(WORKER, options, variables)
    }

    /// Starts a server with that worker.
    #[track_caller]
    pub(crate) fn of(worker: &str, options: &str, variables: &[(&str, &str)]) -> Server {
        let place = Place::new();
        place.write("worker", worker);
        let line = format!("serve --listen 127.0.0.1:0 {options} -- python3 worker");
        Server::typed(place, &line, variables)
    }

    /// Starts the server of a command.
    #[track_caller]
    pub(crate) fn typed(place: Place, line: &str, variables: &[(&str, &str)]) -> Server {
        let mut command = place.typed(line);
        Server::spawned(place, command.envs(variables.iter().copied()))
    }

    /// Starts a server with this limit on open files, and waits until its worker is ready.
    #[track_caller]
    pub(crate) fn with_open_files(limit: u64) -> Server {
        let place = Place::new();
        place.write("worker", WORKER);
        let server = place.typed("serve --listen 127.0.0.1:0 -- python3 worker");
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {limit}; exec \"$@\""), "sh"]);
        command.arg(server.get_program()).args(server.get_args());
        command.current_dir(place.directory()).env("TMPDIR", place.path("tmp"));
        let server = Server::spawned(place, &mut command);
        server.wait_until_ready();
        server
    }

    #[track_caller]
    fn spawned(place: Place, command: &mut Command) -> Server {
        let mut running = place.start(command);
        let said = running.read_stderr_until(", while");
        let address = said.split("http://").nth(1).unwrap().split(',').next().unwrap();
        let address = address.parse().unwrap();
        Server { place, running, address }
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller::new(self.address)
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Reply {
        let mut caller = self.caller();
        caller.write(request(&format!("GET {path}"), "", ""));
        caller.reply()
    }

    #[track_caller]
    pub(crate) fn ask(&self, body: impl AsRef<[u8]>) -> Reply {
        self.caller().ask(body)
    }

    /// Writes a request whose answer comes later.
    pub(crate) fn post(&self, body: impl AsRef<[u8]>) -> Caller {
        let mut caller = self.caller();
        caller.post(body);
        caller
    }

    /// Writes a request that the worker works on until there is a file with that name.
    #[track_caller]
    pub(crate) fn post_waiting(&self, file: &str) -> Caller {
        let caller = self.post(format!("{{\"wait\":\"{file}\"}}"));
        self.place.wait_for("waiting");
        caller
    }

    #[track_caller]
    pub(crate) fn stats(&self) -> Value {
        self.get("/stats").json()
    }

    /// Waits until that number of values is accepted and not answered.
    #[track_caller]
    pub(crate) fn wait_for_open(&self, values: u64) {
        wait_until("values are accepted", || self.stats()["queue"]["open"] == values);
    }

    /// Ends it in order.
    #[track_caller]
    pub(crate) fn end(self) {
        self.running.send(Signal::TERM);
        self.ended().check_said(0, &["ending: accepted requests have"]);
    }

    /// Waits for its end, and checks that no process is left.
    #[track_caller]
    pub(crate) fn ended(self) -> Ran {
        let ran = self.running.ran();
        self.place.check_no_process_is_left();
        ran
    }
}
