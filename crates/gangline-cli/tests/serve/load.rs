//! Many requests.

use std::thread;

use crate::caller::Caller;
use crate::server::Server;

/// GANGLINE_REQUESTS=1000000 asks for more.
fn requests() -> u64 {
    std::env::var("GANGLINE_REQUESTS").map_or(20_000, |number| number.parse().unwrap())
}

const CALLERS: u64 = 16;

fn ask(server: &Server, requests: u64) {
    let address = server.address;
    let threads = (0..CALLERS).map(|_| {
        thread::spawn(move || {
            let mut caller = Caller::new(address);
            for x in 0..requests / CALLERS {
                match x % 50 {
                    7 => caller.ask("{\"error\":\"no\"}").check(500, FAILED),
                    8 => assert_eq!(caller.ask("[1,").status, 400),
                    9 => {
                        let mut leaving = Caller::new(address);
                        leaving.post("{\"error\":\"no\"}");
                    }
                    _ => caller.ask(x.to_string()).check(200, &(x * x).to_string()),
                }
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
}

const FAILED: &str = "{\"error\":\"the model failed for this value\",\"status\":500}";

/// The memory of the process that serves, in KiB.
fn memory(server: &Server) -> u64 {
    let status = format!("/proc/{}/status", server.running.engine().as_raw_pid());
    let status = std::fs::read_to_string(status).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn memory_does_not_grow_with_the_number_of_requests() {
    let mut server = Server::start("--batch 16 -j 2 --retries 1");
    // A full pipe would stop the workers.
    let mut stderr = server.running.0.as_mut().unwrap().stderr.take().unwrap();
    thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    ask(&server, requests() / 4);
    let before = memory(&server);
    ask(&server, requests() * 3 / 4);
    let after = memory(&server);
    // A report keeps the texts of up to 10,000 failures.
    assert!(after < before + 12 * 1_024, "from {before} to {after} KiB");
    server.running.send(rustix::process::Signal::TERM);
    assert_eq!(server.ended().code, Some(0));
}
