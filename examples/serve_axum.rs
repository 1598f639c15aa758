//! An HTTP server that answers from one pool, in batches across requests: `cargo run --example serve_axum`
//!
//! `curl -H 'content-type: application/json' -d 12 localhost:3000/square` prints 144. Ctrl-C ends it in order.
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::time::Duration;

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use gangline::closures::BoxRunner;
use gangline::{Batch, Error, OrderedRunner, Result, RunReport, Service, map_batches};
use tokio::{net::TcpListener, signal::ctrl_c, task::spawn_blocking};

type Squares = Service<BoxRunner<u64, u64, Vec<u64>>>;
type Answer = Result<Json<u64>, (StatusCode, String)>;

/// One request, and one call. If the client disconnects, axum drops this future, which gives the call up.
async fn square(State(service): State<Squares>, Json(x): Json<u64>) -> Answer {
    let full = |full| (StatusCode::TOO_MANY_REQUESTS, format!("{full}"));
    let answer = service.try_submit(x).map_err(full)?.await;
    answer.map(Json).map_err(|error| match error {
        Error::DeadlineExceeded { .. } => (StatusCode::GATEWAY_TIMEOUT, "too slow".to_owned()),
        error if error.is_closed() => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        error => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")),
    })
}

fn start() -> Result<Squares> {
    let squares = map_batches(
        |_cx| Ok(()), // on each device, once: load the model
        |_cx, (), xs: &mut Vec<u64>| {
            std::thread::sleep(Duration::from_millis(5)); // a batch takes a device as long as an item
            Ok(xs.iter().map(|x| x.checked_mul(*x).ok_or_else(|| "too large".into())).collect())
        },
    );
    let builder = OrderedRunner::builder(BoxRunner::new(squares)).devices("cpu*2");
    let service = builder.batch(Batch::up_to(32)).build()?.into_service();
    Ok(service.with_deadline(Duration::from_secs(10)))
}

/// Serves until `end` is ready, and answers all requests that have come by then.
pub async fn serve(
    listener: TcpListener,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<RunReport> {
    // Building and closing wait for hooks, so both go to a thread that may block.
    let service = spawn_blocking(start).await??;
    let app = Router::new().route("/square", post(square)).with_state(service.clone());
    axum::serve(listener, app).with_graceful_shutdown(end).await?;
    spawn_blocking(move || service.close().map(|()| service.report()).map_err(Into::into)).await?
}

#[tokio::main]
async fn main() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    println!("{}", serve(listener, async { ctrl_c().await.unwrap_or(()) }).await?);
    Ok(())
}
