int a;
  // [dev-one] The `first` region.
  int b;
    int c;
  // [/dev-one]
