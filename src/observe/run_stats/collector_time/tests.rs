use super::*;

#[test]
fn a_wait_is_reported_each_time_it_has_doubled() {
    let mut heads = AwaitedHeads::default();
    let ms = Duration::from_millis;
    assert_eq!(heads.news_in(7), ms(100));
    heads.add(7, ms(40));
    assert_eq!((heads.news(), heads.news_in(7), heads.news_in(8)), (None, ms(60), ms(100)));
    heads.add(7, ms(60));
    assert_eq!(heads.news(), Some((7, ms(100))));
    assert_eq!((heads.news(), heads.news_in(7)), (None, ms(100)));
    heads.add(7, ms(100));
    assert_eq!(heads.news(), Some((7, ms(200))));
}

#[test]
fn the_items_with_the_longest_waits_are_kept() {
    let mut heads = AwaitedHeads::default();
    let ms = Duration::from_millis;
    for item in 0..100 {
        heads.add(item, ms(1));
        heads.add(item, ms(item));
    }
    let worst = heads.into_worst();
    assert_eq!(worst.len(), MOST_HEADS);
    assert_eq!(worst[0], (99, ms(100)));
    assert_eq!(worst[19], (80, ms(81)));
}
