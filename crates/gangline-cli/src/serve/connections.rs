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
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::sleep;

use crate::serve::caller_stream::{CallerStream, UnreadAnswers, left};
use crate::serve::phase::{Phases, ServerPhase};

/// The pause before the next connection is accepted, if the system had no room for one.
const NO_ROOM: Duration = Duration::from_millis(100);

/// The largest head of a request, in bytes.
const LARGEST_HEAD: usize = 64 << 10;

/// The rules for connections.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    pub(crate) phases: Arc<Phases>,
    /// The largest number at once.
    pub(crate) most: usize,
    /// The time limit for the head of a request, for the wait between two requests, and for a caller that reads
    /// nothing.
    pub(crate) idle: Duration,
    pub(crate) unread: UnreadAnswers,
}

/// Serves connections until the last phase, and returns when each has ended.
pub(crate) async fn serve(listener: TcpListener, routes: Router, rules: Connections) {
    let Connections { phases, most, .. } = &rules;
    let places = Arc::new(Semaphore::new(*most));
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
                let serving = connection(stream, routes.clone(), rules.clone());
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
    rules: Connections,
) -> impl Future<Output = ()> + Send {
    let Connections { phases, idle, unread, .. } = rules;
    // An answer is written at once, so it must not wait for a full packet.
    let _ = stream.set_nodelay(true);
    // If the system refuses the option, a caller that reads nothing keeps its connection.
    let millis = u32::try_from(idle.as_millis()).unwrap_or(u32::MAX);
    let _ = sockopt::set_tcp_user_timeout(&stream, millis);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(idle).max_buf_size(LARGEST_HEAD);
    let asked = Arc::new(Notify::new());
    let (asking, ending) = (Arc::clone(&asked), Arc::clone(&phases));
    let (routes, stream) = (TowerToHyperService::new(routes), Arc::new(stream));
    let caller = Arc::clone(&stream);
    let answer = service_fn(move |request| {
        asking.notify_one();
        let (answered, phases, caller) =
            (routes.call(request), Arc::clone(&ending), Arc::clone(&caller));
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
            Ok(response)
        }
    });
    let served = http.serve_connection(TokioIo::new(CallerStream::new(stream, unread)), answer);
    async move {
        let mut served = pin!(served);
        let drained = async {
            phases.reached(ServerPhase::Draining).await;
            // The first request of a connection may be on its way. It gets its answer too.
            tokio::select! {
                () = asked.notified() => {}
                () = phases.reached(ServerPhase::Closing) => {}
            }
        };
        tokio::select! {
            _ = served.as_mut() => return,
            () = drained => served.as_mut().graceful_shutdown(),
        }
        // An error says that the caller has broken the connection, which harms no other.
        let _ = served.await;
    }
}
