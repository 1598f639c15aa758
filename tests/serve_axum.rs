//! The example of an HTTP server answers many requests at the same time.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, oneshot};

#[path = "../examples/serve_axum.rs"]
#[expect(dead_code, unreachable_pub, reason = "the test takes the place of `main`")]
mod example;

async fn post(address: std::net::SocketAddr, body: String) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "POST /square HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[test]
fn it_answers_200_requests_at_the_same_time_in_batches() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(example::serve(listener, async { stopped.await.unwrap() }));
        let together = std::sync::Arc::new(Barrier::new(200));
        let requests = (0..200_u64).map(|x| {
            let together = together.clone();
            tokio::spawn(async move {
                together.wait().await;
                (x, post(address, x.to_string()).await)
            })
        });
        for request in requests.collect::<Vec<_>>() {
            let (x, response) = request.await.unwrap();
            assert!(response.starts_with("HTTP/1.1 200"), "{response}");
            assert!(response.ends_with(&format!("\r\n\r\n{}", x * x)), "{response}");
        }
        let failed = post(address, u64::MAX.to_string()).await;
        assert!(failed.starts_with("HTTP/1.1 500") && failed.contains("too large"), "{failed}");
        stop.send(()).unwrap();
        let report = serving.await.unwrap().unwrap();
        assert_eq!((report.account.ok, report.account.failed), (200, 1));
    });
}
