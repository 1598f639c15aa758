//! The connections: their largest number, their time limits, and their end.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::sleep;

use crate::serve::caller_stream::{CallerStream, left, linger, write_last};
use crate::serve::delivery::{AnswerDeliveries, UnansweredRequest};
use crate::serve::phase::{Phases, ServerPhase};
use crate::serve::refusal;

/// The pause before the next connection is accepted, if the system had no room for one.
const NO_ROOM: Duration = Duration::from_millis(100);

/// The largest head of a request, in bytes.
const LARGEST_HEAD: usize = 64 << 10;

/// The rules for connections.
#[derive(Clone)]
pub(crate) struct Connections {
    /// The largest number at once.
    pub(crate) most: usize,
    pub(crate) deliveries: AnswerDeliveries,
}

/// Serves connections until the last phase, and returns when each has ended.
pub(crate) async fn serve(listener: TcpListener, routes: Router, rules: Connections) {
    let Connections { most, deliveries } = rules;
    let phases = Arc::clone(&deliveries.app.phases);
    let places = Arc::new(Semaphore::new(most));
    // Each connection holds a sender, so `recv` below returns once all of them have ended.
    let (open, mut ended) = mpsc::channel::<()>(1);
    let mut closing = pin!(phases.reached(ServerPhase::Closing));
    loop {
        let place = Arc::clone(&places).acquire_owned();
        let next = async {
            let place = place.await.expect("the places stay open");
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            next = next => next,
            () = &mut closing => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let serving = connection(stream, routes.clone(), deliveries.clone());
                let open = open.clone();
                tokio::spawn(async move {
                    serving.await;
                    drop((place, open));
                });
            }
            Err(error) if is_of_connection(&error) => {}
            Err(_) => sleep(NO_ROOM).await,
        }
    }
    drop((listener, open));
    let _ = ended.recv().await;
}

/// Whether an error of `accept` is about one connection, so that the next may succeed at once.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

fn connection(
    stream: TcpStream,
    routes: Router,
    deliveries: AnswerDeliveries,
) -> impl Future<Output = ()> + Send {
    let phases = Arc::clone(&deliveries.app.phases);
    // For the head of a request, and for the wait between two requests.
    let idle = deliveries.app.args.http.idle_timeout;
    // An answer is written at once, so it must not wait for a full packet.
    let _ = stream.set_nodelay(true);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(idle).max_buf_size(LARGEST_HEAD);
    let asked = Arc::new(Notify::new());
    let (asking, ending) = (Arc::clone(&asked), Arc::clone(&phases));
    let (routes, stream) = (TowerToHyperService::new(routes), Arc::new(stream));
    let (caller, request) = (Arc::clone(&stream), Arc::<UnansweredRequest>::default());
    let written = CallerStream::new(stream, Arc::clone(&request), deliveries.clone());
    let answering = Arc::clone(&caller);
    let answer = service_fn(move |asked| {
        asking.notify_one();
        request.asked(&deliveries);
        let (answered, phases) = (routes.call(asked), Arc::clone(&ending));
        let (caller, request) = (Arc::clone(&answering), Arc::clone(&request));
        async move {
            let Ok(mut response) = tokio::select! {
                biased;
                // A caller that has only stopped sending gets an answer that is ready.
                response = answered => response,
                () = left(&caller) => return Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
            };
            if phases.now() >= ServerPhase::Draining {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            request.answered();
            Ok(response)
        }
    });
    let served = http.serve_connection(TokioIo::new(written), answer);
    async move {
        let mut served = pin!(served);
        let ended = tokio::select! {
            ended = served.as_mut() => ended,
            () = drained(&phases, &asked) => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        };
        // Another error says that the caller has broken the connection, which harms no other.
        let Some(error) = ended.err().filter(hyper::Error::is_parse) else { return };
        // hyper leaves this answer to a server of HTTP/2.
        if error.is_parse_version_h2() {
            write_last(&caller, &refusal::of_version());
        }
        linger(&caller).await;
    }
}

/// Waits until the server drains and a connection has had a request. Its first one may be on its way, and gets its
/// answer too.
async fn drained(phases: &Phases, asked: &Notify) {
    phases.reached(ServerPhase::Draining).await;
    tokio::select! {
        () = asked.notified() => {}
        () = phases.reached(ServerPhase::Closing) => {}
    }
}
