template <int> int light();
template <> int light<NUMBER>() { return NUMBER; }
