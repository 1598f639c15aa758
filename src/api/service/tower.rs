//! `Service` as a service of tower, so that layers of tower compose with it.

use std::task::{Context, Poll};

use super::{Call, Service};
use crate::engine::service::calls::Reservation;
use crate::error::Error;
use crate::runner::Runner;

/// `poll_ready` takes a place in the [queue](Service#the-queue), and `call` uses it.
///
/// So a handle is ready while the queue has room, and a layer such as `LoadShed` refuses work while it has none. A
/// handle that is ready keeps its place until `call`, or until it is dropped. Its clones do not share the place. The
/// [deadline](Service::with_deadline) of a call begins with `call`. The future of a `call` without a place waits for
/// one.
///
/// Once the service is closed, drains or has ended, `poll_ready` fails. So does the `call` of a handle that was ready
/// before.
///
/// `service.call(x)` is the [method](Service::call) that blocks. Use `tower::ServiceExt`, or name the trait.
///
/// ```
/// use gangline::{OrderedRunner, map};
/// use tower::{ServiceBuilder, ServiceExt};
///
/// # fn wait<F: Future>(future: F) -> F::Output { futures_lite::future::block_on(future) }
/// let squares = map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
/// let squares = OrderedRunner::builder(squares).devices(1).window(64).build()?.into_service();
/// let layered = ServiceBuilder::new().load_shed().concurrency_limit(32).service(squares.clone());
/// let answer = wait(layered.oneshot(7)).map_err(|error| error.to_string());
/// assert_eq!(answer, Ok(49));
/// squares.close()?;
/// let closed = wait(squares.oneshot(7)).unwrap_err();
/// assert!(closed.is_closed());
/// # Ok::<(), gangline::BoxError>(())
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
impl<R: Runner + 'static> tower_service::Service<R::Input> for Service<R> {
    type Response = R::Output;
    type Error = Error;
    type Future = Call<R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let place = match &mut self.place {
            Some(place) => place,
            none => none.insert(Reservation::begin(self.host.0.calls())?),
        };
        let ready = place.poll(cx);
        if let Poll::Ready(Err(_)) = &ready {
            self.place = None;
        }
        ready
    }

    fn call(&mut self, input: R::Input) -> Call<R> {
        let deadline = self.deadline();
        match self.place.take() {
            Some(place) => Call(place.submit(input, deadline)),
            None => self.call_async(input),
        }
    }
}
