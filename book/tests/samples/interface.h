
struct Earlier;
class TORCH_API Iface : public Base {
 public:
  virtual ~Iface() = default;
  // virtual void commented(int x) = 0;
  virtual bool must([[maybe_unused]] int a = -1) const = 0;
  virtual std::pair<int, int> does(Pool pool = {0, 0}) {
    TORCH_CHECK(false, "not here: https://", "a { b");
  }
  virtual void nothing(void* /*ptr*/) {}
#define FAIL(x) \
  virtual void in_macro();
  bool again() const override {
    return false;
  }
  virtual int elsewhere() const;
  void plain() { inner([] { return virtual_; }); }
  struct Nested { int x; };
  int member_{0};
 private:
  virtual T* hidden(std::function<bool(int)> f) { return nullptr; }
};
