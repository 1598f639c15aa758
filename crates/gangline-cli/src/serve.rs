//! `gangline serve`: the warm workers of `gangline run`, behind HTTP.
//!
//! A request takes a place in the queue of the library's service for each of its values, and waits for the answers. So
//! batches form across callers, and each failure answers its own caller. HTTP runs on at most four threads of tokio.
//! Messages to a worker are written and read on the thread of its slot.

mod access;
mod answering;
#[cfg(any(test, fuzzing))]
pub(crate) mod any_bytes;
mod app;
mod background;
mod body;
mod caller_stream;
mod connections;
mod delivery;
mod figures;
mod form;
mod host;
mod memory;
mod multipart;
mod open_count;
mod phase;
mod predict;
mod refusal;
mod routes;
mod spoken_version;
mod unread_body;
mod values;
mod workers;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{interval, timeout, timeout_at};

use self::access::AccessRule;
use self::app::App;
use self::background::{BackgroundFile, BackgroundThread};
use self::connections::Connections;
use self::delivery::AnswerDeliveries;
use self::figures::ServerFigures;
use self::memory::RequestMemory;
use self::open_count::OpenCount;
use self::phase::{Phases, ServerPhase};
use self::workers::{ServingWorkers, script_name};
use crate::args::running::TermSequence;
use crate::args::serve::ServeArgs;
use crate::error::{CliError, Context};
use crate::execute::failure::internal;
use crate::execute::groups::Wish;
use crate::execute::limits::{allow_connections, allow_files};
use crate::execute::signals::Attendant;
use crate::exit;
use crate::plan::template::quoted;
use gangline::report::HumanDuration;

/// The time that the reader of standard output has for the records of `--background`.
const LAST_BYTES: Duration = Duration::from_secs(5);
/// The time that refusals have to be written when the time of `--grace` is over, and that connections have to close after
/// the last answer. The signal thread ends the process a little later.
const LAST_REFUSALS: Duration = Duration::from_millis(200);
/// The interval at which recorded samples are sorted into buckets. A request of `/metrics` does the same.
const UPKEEP: Duration = Duration::from_secs(5);
/// The largest number of connections that wait to be accepted, if the system allows it. The standard library asks for 128, and a
/// caller beyond these tries again after a second.
const MOST_WAITING: i32 = 4_096;
/// The largest number of threads for HTTP. More would not answer more requests, since the workers do the work.
const MOST_THREADS: usize = 4;
/// The time limit for the last messages. The reader of standard error may read no more.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How the server has ended.
struct ServerEnd {
    result: Result<(), CliError>,
    /// Whether each accepted request was answered.
    are_answered: bool,
    /// The number of answers that were not written to their end within the time of `--grace`.
    unread: usize,
    /// The number of answers that were cut off before, each with a line.
    cut_off: usize,
}

/// Serves until a signal, and returns the exit status.
pub(crate) fn serve(args: ServeArgs, supervisor: Option<i32>) -> Result<u8, CliError> {
    // First, so that no signal is missed.
    let kill_after = TermSequence::with_pause(args.working.kill_after).lasts();
    let attendant = Attendant::start(supervisor, args.http.grace, kill_after).map_err(internal)?;
    let phases = Arc::new(Phases::new());
    let access = AccessRule::new(args.http.token.as_deref(), args.http.listen)?;
    let background = BackgroundFile::open(&args.background)?;
    let workers = ServingWorkers::new(&args, &phases)?;
    allow_files(workers.len())?;
    let connections = allow_connections(workers.len());
    let listener = listen(args.http.listen)?;
    attendant.attend_to(&workers.lanes);
    let name = args.http.name.clone().unwrap_or_else(|| script_name(&args.command));
    let figures =
        ServerFigures::install(&name).map_err(|error| CliError::new(exit::INTERNAL, error))?;
    let (memory, service) = (RequestMemory::new(args.http.max_body), OnceLock::new());
    let uploads = OpenCount::new();
    let app =
        Arc::new(App { name, args, access, phases, workers, figures, service, memory, uploads });
    greet(&app, &listener);
    let runtime = runtime().map_err(internal)?;
    let end = runtime.block_on(live(&app, listener, (connections, background)));
    // Only tasks of callers that read slowly are left.
    runtime.shutdown_background();
    let terminal = &app.workers.lanes.shared.terminal;
    let status = conclude(&app, end, attendant.exit()).unwrap_or_else(|error| {
        terminal.tell(&error.to_string());
        error.exit
    });
    // Last, so that a signal can still end this process.
    drop(attendant);
    terminal.finish(LAST_WORDS);
    Ok(status)
}

fn listen(address: SocketAddr) -> Result<TcpListener, CliError> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        rustix::net::listen(&listener, MOST_WAITING)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| {
        let what = format!("--listen needs another address or port: cannot listen on {address}");
        CliError::new(exit::USAGE, Context::new(what, error))
    })
}

fn greet(app: &App, listener: &TcpListener) {
    let terminal = &app.workers.lanes.shared.terminal;
    let address = listener.local_addr().unwrap_or(app.args.http.listen);
    let workers = match app.workers.len() {
        1 => "1 worker loads".to_owned(),
        workers => format!("{workers} workers load"),
    };
    terminal.tell(&format!("listening on http://{address}, while {workers}"));
    if matches!(app.access, AccessRule::All) {
        terminal.tell(
            "warning: every program that reaches this address may use the model: give a token (--token FILE), or \
             let only a proxy reach it",
        );
    }
}

fn runtime() -> std::io::Result<Runtime> {
    let threads = num_cpus::get().min(MOST_THREADS);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("gangline-http")
        .enable_all()
        .build()
}

/// The life of the server: load, answer, drain, close.
async fn live(
    app: &Arc<App>,
    listener: TcpListener,
    (connections, background): (usize, Option<BackgroundFile>),
) -> ServerEnd {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            let result = Err(internal(error));
            return ServerEnd { result, are_answered: true, unread: 0, cut_off: 0 };
        }
    };
    let deliveries = AnswerDeliveries::new(Arc::clone(app));
    let rules = Connections { most: connections, deliveries: deliveries.clone() };
    let serving =
        tokio::spawn(connections::serve(listener, routes::routes(Arc::clone(app)), rules));
    let upkeep = tokio::spawn(sort(Arc::clone(app)));
    let loaded = load(app).await.and_then(|()| begin(app, background));
    let (mut result, background) = match loaded {
        Ok(background) => (Ok(()), background),
        Err(error) => {
            app.phases.reach(ServerPhase::Draining);
            (Err(error), None)
        }
    };
    let reloading = reload(app).await;
    let until = tokio::time::Instant::now() + app.args.http.grace;
    let are_answered = drain(app, until).await;
    app.phases.reach(ServerPhase::Closing);
    let unread = deliver(serving, &deliveries, until).await;
    if let Some(background) = background {
        result = result.and(background.join(LAST_BYTES).await);
    }
    upkeep.abort();
    if let Some(service) = app.service.get().cloned() {
        let closed = spawn_blocking(move || service.close()).await;
        result = result.and(match closed {
            Ok(closed) => closed.map_err(crate::execute::failure::of_run),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        });
    }
    if let Some(reloading) = reloading {
        // A new worker that still loads is of no use.
        app.workers.lanes.groups().end_all();
        let _ = reloading.await;
    }
    ServerEnd { result, are_answered, unread, cut_off: deliveries.cut_off() }
}

/// Replaces the workers at each SIGHUP, until the server drains. Returns the replacement that is still in progress
/// then.
async fn reload(app: &Arc<App>) -> Option<JoinHandle<()>> {
    loop {
        tokio::select! {
            () = app.phases.reached(ServerPhase::Draining) => return None,
            () = app.phases.reload_asked() => {}
        }
        let workers = Arc::clone(app);
        let mut reloading = spawn_blocking(move || workers.workers.reload());
        tokio::select! {
            () = app.phases.reached(ServerPhase::Draining) => return Some(reloading),
            _ = &mut reloading => {}
        }
    }
}

/// Starts the workers, unless a signal comes before they are ready.
async fn load(app: &Arc<App>) -> Result<(), CliError> {
    let begun = Instant::now();
    let mut starting = spawn_blocking({
        let app = Arc::clone(app);
        move || app.workers.start(&app.args, &app.name)
    });
    let started = tokio::select! {
        started = &mut starting => started,
        () = app.phases.reached(ServerPhase::Draining) => {
            let lanes = &app.workers.lanes;
            lanes.close();
            lanes.groups().end_all();
            let _ = starting.await;
            return Ok(());
        }
    };
    match started {
        Ok(Ok(service)) => {
            let _ = app.service.set(service.with_deadline(app.args.working.timeout));
            let took = HumanDuration(begun.elapsed());
            app.workers.lanes.shared.terminal.tell(&format!("ready after {took}"));
            app.phases.reach(ServerPhase::Ready);
            Ok(())
        }
        Ok(Err(error)) => Err(error),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Begins with the background, unless a signal came before the workers were ready.
fn begin(
    app: &Arc<App>,
    background: Option<BackgroundFile>,
) -> Result<Option<BackgroundThread>, CliError> {
    let begun = background.zip(app.service.get()).map(|(file, service)| file.start(app, service));
    begun.transpose().map_err(internal)
}

/// Waits until accepted requests are answered: first for bodies that are on their way, then for values in the queue.
/// Returns whether all of them got their answers: none was late, and no worker was killed.
async fn drain(app: &Arc<App>, until: tokio::time::Instant) -> bool {
    let Some(service) = app.service.get().cloned() else { return true };
    let are_read = timeout_at(until, app.uploads.none()).await.is_ok();
    let left = until.saturating_duration_since(tokio::time::Instant::now());
    let are_answered = spawn_blocking(move || service.drain(left)).await.unwrap_or(false);
    are_read && are_answered && app.workers.lanes.groups().wish() == Wish::GoOn
}

/// Waits until the answers are written and the connections have closed. Returns the number of answers that are not written
/// to their end then.
async fn deliver(
    serving: JoinHandle<()>,
    deliveries: &AnswerDeliveries,
    until: tokio::time::Instant,
) -> usize {
    let until = until.max(tokio::time::Instant::now() + LAST_REFUSALS);
    let _ = timeout_at(until, deliveries.done()).await;
    let unread = deliveries.open();
    // A connection without a request, or with half a head, has no answer to come.
    let _ = timeout(LAST_REFUSALS, serving).await;
    unread
}

/// Keeps the memory of recorded samples bounded, also if nothing reads `/metrics`.
async fn sort(app: Arc<App>) {
    let mut upkeep = interval(UPKEEP);
    loop {
        upkeep.tick().await;
        app.figures.sort();
    }
}

fn conclude(app: &App, end: ServerEnd, signalled: Option<u8>) -> Result<u8, CliError> {
    let shared = &app.workers.lanes.shared;
    let unread = match end.unread {
        0 => None,
        1 => Some("1 answer was not delivered: its caller".to_owned()),
        count => Some(format!("{count} answers were not delivered: their callers")),
    };
    if let Some(unread) = unread {
        shared.terminal.tell(&format!("{unread} read too slowly (--grace)"));
    }
    if let Some(program) = shared.missing_program.get() {
        let text = format!("{}, or the interpreter that it names, does not exist", quoted(program));
        shared.terminal.tell(&text);
    }
    if let Some(error) = shared.take_error() {
        return Err(error);
    }
    end.result?;
    if !end.are_answered {
        shared.terminal.tell("ended, with requests that were not answered in time");
    }
    match end.are_answered && end.unread == 0 && end.cut_off == 0 {
        false => Ok(signalled.unwrap_or(exit::TERMINATED)),
        true if shared.has_cut_off_end() => Ok(exit::OUTPUT),
        true => Ok(exit::OK),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn callers_that_come_at_once_need_no_second_try() {
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let callers = most.trim().parse::<usize>().unwrap().min(400);
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        // The system tries again after a second.
        let soon = Duration::from_millis(900);
        let callers: Vec<_> =
            (0..callers).map(|_| TcpStream::connect_timeout(&address, soon).unwrap()).collect();
        drop(callers);
    }
}
